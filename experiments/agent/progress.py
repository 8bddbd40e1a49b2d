"""The task state that code keeps: what was called how often, when, with what failures, and what was loaded.

No packet can reset it and no text can write it; a status bar and the gates are fed from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from experiments.agent.refusals import read_arguments
from serving.assembler import (
    BarState,
    ContextItem,
    ErrorFacts,
    RunLimits,
    SystemState,
    TaskState,
    TodoItem,
    ToolCall,
    Trajectory,
    history_items,
    part_id,
)
from serving.assembler.record import canonical_json


@dataclass(frozen=True, slots=True)
class Placed:
    """An item of the log that is no turn (a loaded contract, a notification), and the item it stands behind."""

    after: str
    item: ContextItem


@dataclass(frozen=True)
class Progress:
    """A frozen value: every step makes a new one."""

    started_at: datetime
    seen: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """How often each call was made, by `call_key`."""
    tools_run: int = 0
    times: Mapping[str, datetime] = field(default_factory=lambda: MappingProxyType({}))
    """When a turn was said or a result returned: by item id, or by `part_id(item id, call id)`."""
    errors: tuple[ErrorFacts, ...] = ()
    placed: tuple[Placed, ...] = ()

    def next_turn(self, now: datetime) -> Progress:
        """What a new user message begins with: its own time and counts, and a log that still holds all."""
        return replace(self, started_at=now, seen=MappingProxyType({}), tools_run=0)

    def at(self, item_id: str, now: datetime, call_id: str | None = None) -> Progress:
        """With the time of a turn, or of one result of it."""
        owner = item_id if call_id is None else part_id(item_id, call_id)
        return replace(self, times={**self.times, owner: now})

    def with_placed(self, after: str, *items: ContextItem) -> Progress:
        """With items that stay behind the item `after` for good."""
        return replace(self, placed=(*self.placed, *(Placed(after, item) for item in items)))

    def log(self, trajectory: Trajectory) -> tuple[ContextItem, ...]:
        """Every turn so far, and behind each what was placed there, in the order of placing."""
        items: list[ContextItem] = []
        for turn in history_items(trajectory.turns):
            items.append(turn)
            items.extend(placed.item for placed in self.placed if placed.after == turn.id)
        return tuple(items)

    def state(self, given: TaskState, deadline_s: float | None) -> TaskState:
        """The state that gates read: the given one, with the attempts used and the deadline that runs."""
        update: dict[str, object] = {}
        if given.limits.tool_attempts is not None:
            update["tool_attempts_used"] = given.limits.tool_attempts_used + self.tools_run
        if deadline_s is not None:
            update |= {"started_at": self.started_at, "deadline_seconds": deadline_s}
        if not update:
            return given
        limits = RunLimits.model_validate({**dict(given.limits), **update})
        return given.model_copy(update={"limits": limits})

    def bar(
        self,
        system: SystemState,
        todo: tuple[TodoItem, ...],
        now: datetime,
        call_limits: Mapping[str, int] = MappingProxyType({}),
    ) -> BarState:
        """What a status bar shows beside the log."""
        return BarState(
            now=now,
            times=dict(self.times),
            call_limits=dict(call_limits),
            todo=todo,
            errors=self.errors,
            system=system,
        )

    def expired(self, deadline_s: float | None, now: datetime) -> bool:
        """Whether the task's time is over."""
        return deadline_s is not None and now >= self.started_at + timedelta(seconds=deadline_s)


def call_key(call: ToolCall) -> str:
    """Equal for the same tool with canonically equal arguments: spaces and the order of keys mean nothing."""
    read = read_arguments(call.arguments)
    return canonical_json([call.name, call.arguments if isinstance(read, str) else read])
