"""The system calls that a sandboxed program does without: a seccomp filter, as data.

Namespaces and Landlock keep files, processes and the network out of reach. This closes what they leave open:
sockets of families that no network namespace covers (a virtual machine's host answers on AF_VSOCK), memory
that no limit counts (memfd, System V), the user's keyring, and the kernel interfaces with the longest record of
holes. Format: a program of classic BPF (linux/seccomp.h, linux/filter.h).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from experiments.agent.tools.sandbox.limits import NoIsolationError

_LOAD_WORD: Final = 0x20
_JUMP_EQUAL: Final = 0x15
_JUMP_AT_LEAST: Final = 0x35
_RETURN: Final = 0x06
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000 | 1
"""The call fails with EPERM."""
_KILL: Final = 0x80000000
_NUMBER, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets in `struct seccomp_data`; both machines are little-endian."""
_X32: Final = 0x40000000
"""Numbers of x86-64's second calling convention begin here."""

_MACHINES: Final[Mapping[str, int]] = MappingProxyType({"x86_64": 0xC000003E, "aarch64": 0xC00000B7})
_SOCKETS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType({"x86_64": (41, 53), "aarch64": (198, 199)})
"""`socket` and `socketpair`, whose first argument is the family."""
_REFUSED: Final[Mapping[str, Mapping[str, int]]] = MappingProxyType(
    {
        "memfd_create": {"x86_64": 319, "aarch64": 279},
        "memfd_secret": {"x86_64": 447, "aarch64": 447},
        "shmget": {"x86_64": 29, "aarch64": 194},
        "shmat": {"x86_64": 30, "aarch64": 196},
        "msgget": {"x86_64": 68, "aarch64": 186},
        "semget": {"x86_64": 64, "aarch64": 190},
        "mq_open": {"x86_64": 240, "aarch64": 180},
        "vmsplice": {"x86_64": 278, "aarch64": 75},
        "add_key": {"x86_64": 248, "aarch64": 217},
        "request_key": {"x86_64": 249, "aarch64": 218},
        "keyctl": {"x86_64": 250, "aarch64": 219},
        "ptrace": {"x86_64": 101, "aarch64": 117},
        "process_vm_readv": {"x86_64": 310, "aarch64": 270},
        "process_vm_writev": {"x86_64": 311, "aarch64": 271},
        "pidfd_getfd": {"x86_64": 438, "aarch64": 438},
        "open_by_handle_at": {"x86_64": 304, "aarch64": 265},
        "mount": {"x86_64": 165, "aarch64": 40},
        "umount2": {"x86_64": 166, "aarch64": 39},
        "pivot_root": {"x86_64": 155, "aarch64": 41},
        "open_tree": {"x86_64": 428, "aarch64": 428},
        "move_mount": {"x86_64": 429, "aarch64": 429},
        "fsopen": {"x86_64": 430, "aarch64": 430},
        "mount_setattr": {"x86_64": 442, "aarch64": 442},
        "unshare": {"x86_64": 272, "aarch64": 97},
        "setns": {"x86_64": 308, "aarch64": 268},
        "personality": {"x86_64": 135, "aarch64": 92},
        "bpf": {"x86_64": 321, "aarch64": 280},
        "perf_event_open": {"x86_64": 298, "aarch64": 241},
        "userfaultfd": {"x86_64": 323, "aarch64": 282},
        "io_uring_setup": {"x86_64": 425, "aarch64": 425},
    }
)


def filter_program(machine: str) -> bytes:
    """The filter for a machine as `platform.machine()` names it, 8 bytes an instruction.

    Raises `NoIsolationError` for a machine whose system call numbers are not known here.
    """
    if machine not in _MACHINES:
        raise NoIsolationError(
            f"Expected a machine of {', '.join(_MACHINES)} to isolate a program, got {machine!r}, whose system "
            "call numbers are not known here: leave the code interpreter out."
        )
    program = [
        _step(_LOAD_WORD, _MACHINE),
        _step(_JUMP_EQUAL, _MACHINES[machine], 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD_WORD, _NUMBER),
    ]
    if machine == "x86_64":
        program += [_step(_JUMP_AT_LEAST, _X32, 0, 1), _step(_RETURN, _REFUSE)]
    for numbers in _REFUSED.values():
        program += [_step(_JUMP_EQUAL, numbers[machine], 0, 1), _step(_RETURN, _REFUSE)]
    for number in _SOCKETS[machine]:
        program += [
            _step(_JUMP_EQUAL, number, 0, 4),
            _step(_LOAD_WORD, _FIRST_ARGUMENT),
            _step(_JUMP_EQUAL, socket.AF_UNIX, 0, 1),
            _step(_RETURN, _ALLOW),
            _step(_RETURN, _REFUSE),
        ]
    program.append(_step(_RETURN, _ALLOW))
    return b"".join(program)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)
