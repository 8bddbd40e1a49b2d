from __future__ import annotations

import struct

import pytest

from experiments.agent.tools.sandbox import NoIsolationError
from experiments.agent.tools.sandbox.linux_filter import filter_program

ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050001, 0x80000000
X86, ARM = 0xC000003E, 0xC00000B7


def verdict(program: bytes, machine: int, number: int, argument: int = 0) -> int:
    """What the kernel would answer, by the four instructions that the filter uses."""
    data = struct.pack("<IIQQ", number, machine, 0, argument)  # number, machine, where from, first argument
    steps = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    at = loaded = 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        match code:
            case 0x20:
                loaded = struct.unpack_from("<I", data, value)[0]
            case 0x15:
                at += if_true if loaded == value else if_false
            case 0x35:
                at += if_true if loaded >= value else if_false
            case 0x06:
                return value
            case _:
                pytest.fail(f"unknown instruction {code:#x}")


@pytest.mark.parametrize(
    ("machine", "arch", "unshare", "memfd", "opened", "socket"),
    [("x86_64", X86, 272, 319, 257, 41), ("aarch64", ARM, 97, 279, 56, 198)],
)
def test_known_calls_get_their_answer(
    machine: str, arch: int, unshare: int, memfd: int, opened: int, socket: int
) -> None:
    program = filter_program(machine)
    assert verdict(program, arch, opened) == ALLOW
    assert verdict(program, arch, unshare) == verdict(program, arch, memfd) == REFUSE
    # The argument of the family is the first: it lies at offset 16 of what the filter sees.
    assert verdict(program, arch, socket, 1) == ALLOW
    assert all(verdict(program, arch, socket, family) == REFUSE for family in (0, 2, 10, 16, 17, 38, 40))


def test_the_calls_of_another_machine_end_the_program() -> None:
    assert verdict(filter_program("x86_64"), 0x40000003, 1) == KILL
    assert verdict(filter_program("x86_64"), X86, 0x40000000 | 39) == REFUSE


def test_a_machine_without_a_table_is_refused_in_one_sentence() -> None:
    with pytest.raises(NoIsolationError, match="got 'riscv64'"):
        filter_program("riscv64")
