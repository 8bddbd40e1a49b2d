"""What a trial replays: the first part of a task's name, and with it the trials that may be compared."""

from __future__ import annotations

from enum import StrEnum

from serving.errors import UsageError


class Tour(StrEnum):
    """A trajectory; arms are compared within one, for others are other work."""

    FILES = "file-tour"
    """The tour of a model that says what it does."""
    THINKING = "thinking-tour"
    """The same tour of a model that thinks first."""
    TIMED = "timed-tour"
    """Its beginning, for the arms whose times are measured."""


def tour_of(task: str) -> Tour:
    """The tour of a task such as `file-tour-16`; `UsageError` for a task of another study."""
    name = task.rpartition("-")[0]
    if name not in set(Tour):
        raise UsageError(f"Expected a task of {', '.join(Tour)} and a number of calls, got {task!r}.")
    return Tour(name)
