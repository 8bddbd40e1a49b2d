"""The code interpreter: a program of the model's, isolated by the operating system or not offered at all."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from experiments.agent.tools.definitions import Arguments
from experiments.agent.tools.outcome import Clean, Failure, Reply, ToolError, as_it_is
from experiments.agent.tools.sandbox import Ended, Limits, Sandbox, SandboxFailedError, SandboxResult
from experiments.agent.tools.tool import MAX_OUTCOME_CHARACTERS, Tool, cancellable, contract_of
from serving.assembler import Stage

MAX_CODE_CHARACTERS: Final = 100_000
_ROOM: Final = MAX_OUTCOME_CHARACTERS // 2 - 200
"""For each of the two outputs, so that the line on how it ended has room too."""


class Code(Arguments):
    """A whole program; what it prints is what it says."""

    code: str


def interpreter_tools(sandbox: Sandbox, clean: Clean = as_it_is) -> tuple[Tool, ...]:
    """`run_python`: the standard library, a scratch folder that goes with the program, and nothing else.

    A program may ask the machine for the time or for chance: what it prints is not bound to repeat.
    """

    def run(asked: Code, cancel: threading.Event | None) -> Reply:
        if len(asked.code) > MAX_CODE_CHARACTERS:
            raise ToolError(
                f"A program has at most {MAX_CODE_CHARACTERS:,} characters, not {len(asked.code):,}; write less.",
                Failure.LIMIT,
            )
        try:
            result = sandbox.run(asked.code, cancel)
        except SandboxFailedError as error:
            raise ToolError(str(error), Failure.ISOLATION) from error
        verified = {"ended": result.ended.value, "exit_status": result.exit_status}
        cleaned = replace(result, stdout=clean(result.stdout), stderr=clean(result.stderr))
        text = _text(cleaned, sandbox.limits)
        if result.ended is Ended.EXITED and result.exit_status == 0:
            return Reply(text, verified)
        raise ToolError(text, _FAILURES[result.ended], verified)

    contract = contract_of(
        "run_python",
        "Run a Python program and return what it prints. Standard library only; no network, no files kept.",
        Code,
        effect="None: the program sees nothing of the machine, and nothing of it is left.",
        idempotent=True,
        failures=(Failure.PROGRAM, Failure.LIMIT, Failure.CANCELLED, Failure.ISOLATION),
        stages=frozenset({Stage.DISCOVERY, Stage.ANALYSIS}),
    )
    return (cancellable(contract, Code, run),)


_FAILURES: Final[Mapping[Ended, Failure]] = MappingProxyType(
    {
        Ended.EXITED: Failure.PROGRAM,
        Ended.SIGNAL: Failure.PROGRAM,
        Ended.WALL_TIME: Failure.LIMIT,
        Ended.CPU_TIME: Failure.LIMIT,
        Ended.MEMORY: Failure.LIMIT,
        Ended.PROCESSES: Failure.LIMIT,
        Ended.OUTPUT: Failure.LIMIT,
        Ended.CANCELLED: Failure.CANCELLED,
    }
)


def _text(result: SandboxResult, limits: Limits) -> str:
    """What the model reads: the output, the errors if there are any, and how it ended unless all went well."""
    parts = [_middle_out(result.stdout).rstrip("\n")] if result.stdout else []
    if result.stderr:
        parts.append(f"[stderr]\n{_middle_out(result.stderr)}".rstrip("\n"))
    if (how := _how(result, limits)) is not None:
        parts.append(how)
    return "\n".join(parts) or "[the program printed nothing]"


def _how(result: SandboxResult, limits: Limits) -> str | None:
    match result.ended:
        case Ended.EXITED:
            return f"[exit status {result.exit_status}]" if result.exit_status else None
        case Ended.SIGNAL:
            return f"[ended by signal {result.signal}]"
        case Ended.WALL_TIME:
            return f"[ended: it ran longer than {limits.wall_seconds:g} s]"
        case Ended.CPU_TIME:
            return f"[ended: it computed longer than {limits.cpu_seconds} s]"
        case Ended.MEMORY:
            return f"[ended: it used more than {limits.memory_bytes // 2**20:,} MiB of memory]"
        case Ended.PROCESSES:
            return f"[ended: it had more than {limits.processes} processes and threads]"
        case Ended.OUTPUT:
            return f"[ended: it wrote more than {limits.output_bytes:,} bytes]"
        case Ended.CANCELLED:
            return "[ended: the call was cancelled]"


def _middle_out(text: str) -> str:
    """The beginning and the end of a long output: a traceback says what happened in its last line."""
    if len(text) <= _ROOM:
        return text
    half = _ROOM // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"
