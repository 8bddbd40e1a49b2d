"""What code knows of a run beside its log: times, limits, the TODO list, failures, the machine."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from serving.assembler.record import Instant, Record
from serving.assembler.working_directory import ShellTool


class TodoStatus(StrEnum):
    """Where one piece of work stands."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


class TodoItem(Record):
    """One piece of work; the text may be a model's, the id and the status are the application's."""

    id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,40}$")]
    text: str = Field(min_length=1)
    status: TodoStatus = TodoStatus.PENDING


class ErrorFacts(Record):
    """What code knows of one failed call, beside its message in the log."""

    call_id: str = Field(min_length=1)
    error_class: str = Field(min_length=1)
    next_actions: tuple[str, ...] = ()


class SystemState(Record):
    """The machine that the tools act on; a field that is not known is None and shown as unknown."""

    cwd: str | None = None
    """Where the shell was opened; moved by the `cd`s of the log when `shell_tool` is given."""
    home: str | None = None
    os: str | None = None
    shell: str | None = None
    python: str | None = None
    shell_tool: ShellTool | None = None


class BarState(Record):
    """What the log does not hold; kept by code, handed in whole for every bar."""

    now: Instant | None = None
    times: dict[str, Instant] = Field(default_factory=dict)
    """When a turn was said or a result returned: by item id, or by `part_id(item id, call id)`."""
    call_limits: dict[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    """By tool name, for the whole run."""
    todo: tuple[TodoItem, ...] = ()
    errors: tuple[ErrorFacts, ...] = ()
    system: SystemState = SystemState()

    def _problem(self) -> str | None:
        for name, ids in (
            ("TODO item", [item.id for item in self.todo]),
            ("call in 'errors'", [error.call_id for error in self.errors]),
        ):
            if twice := [value for value, count in Counter(ids).items() if count > 1]:
                return f"every {name} has its own id, but {twice[0]} comes twice"
        running = [item.id for item in self.todo if item.status is TodoStatus.IN_PROGRESS]
        if len(running) > 1:
            return f"at most one TODO item is in progress, but {', '.join(running)} are"
        return None
