"""What a sandboxed program may use, and how its run ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from serving.errors import LabError, UsageError

_MIB = 2**20


class NoIsolationError(LabError):
    """This machine cannot isolate a program; the sentence says what is missing."""


class SandboxFailedError(LabError):
    """The isolation could not be set up for one run, so nothing ran."""

    def __init__(self, refused: str) -> None:
        super().__init__(
            f"Expected an isolated process, but {refused}: nothing ran; try again, or do without."
        )
        self.refused = refused


@dataclass(frozen=True, slots=True)
class Limits:
    """Hard limits of one run; all of them bind the superuser too. Raises `UsageError` for one below 1."""

    wall_seconds: float = 10
    """From the program's first instruction on; the set-up before it has a limit of its own."""
    cpu_seconds: int = 5
    """Of one process (kernel), and of all together (watched)."""
    memory_bytes: int = 512 * _MIB
    """Address space of one process (kernel), and what all hold together (watched every 20 ms)."""
    processes: int = 16
    """Threads count as processes, as they do for the kernel."""
    open_files: int = 64
    """Of one process."""
    scratch_bytes: int = 32 * _MIB
    """Of all files together; they are in memory, and gone with the program."""
    scratch_files: int = 1_000
    output_bytes: int = 64 * 1024
    """Of standard output and of standard error each; a program that writes more is ended."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not 0 < value < 2**40:
                raise UsageError(f"Expected {name} of a sandbox between 1 and 2^40, got {value}: change it.")


class Ended(StrEnum):
    """Why a run ended."""

    EXITED = "exited"
    """By itself; its exit status tells the rest."""
    SIGNAL = "signal"
    """By a signal that no limit explains."""
    WALL_TIME = "wall_time"
    CPU_TIME = "cpu_time"
    MEMORY = "memory"
    PROCESSES = "processes"
    OUTPUT = "output"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """What is left of a run: nothing else is."""

    ended: Ended
    exit_status: int | None
    """None unless `ended` is `EXITED`."""
    signal: int | None
    """The signal that ended it, with `SIGNAL` and for some limits."""
    stdout: str
    stderr: str
    """At most `output_bytes` each; bytes that are no UTF-8 come as U+FFFD."""
