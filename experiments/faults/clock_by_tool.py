"""The time of day fetched by a tool call before every call of the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from experiments.faults.base import FaultContext, clock, made_up_step, trajectory_end
from experiments.faults.clock_tool import CALL_PREFIX, call_of_the_clock, with_clock_tool
from serving.assembler import Draft, DraftMessage, Invariant, Region
from serving.errors import LabError, UsageError


@dataclass(frozen=True, slots=True)
class ClockByTool:
    """Breaks nothing: what the clock said before stays where it was said. Costs two messages a call.

    The one clock of this room that a prefix survives, and what the others are to be compared with.
    """

    times: tuple[datetime, ...]
    """Of all calls up to this one."""
    name: str = "clock-by-tool"
    breaks: frozenset[Invariant] = frozenset()

    @classmethod
    def build(cls, context: FaultContext) -> ClockByTool:
        """The fault for one call; `UsageError` unless the times of all calls before it are given."""
        if len(context.times) != context.call:
            raise UsageError(
                f"clock-by-tool repeats the times of the {context.call} calls before this one, but "
                f"{len(context.times)} came: give them as FaultContext.times."
            )
        return cls((*context.times, context.now))

    def apply(self, draft: Draft) -> Draft:
        """The draft with a clock call and its result before every message of the model, and at the end."""
        return replace(with_clock_tool(draft), messages=tuple(self._clocked(draft)))

    def _clocked(self, draft: Draft) -> Iterator[DraftMessage]:
        model = [index for index, message in enumerate(draft.messages) if _is_of_the_model(message)]
        # Every message of the model was one call; of a draft that lost the oldest ones the latest are left.
        asked = (*model, trajectory_end(draft))
        first = len(self.times) - len(asked)
        if first < 0:
            raise LabError(
                f"{self.name} was built for call {len(self.times) - 1}, but the history holds {len(model)} "
                "messages of the model; give FaultContext the number and times of all calls."
            )
        numbers = {index: number for number, index in enumerate(asked, first)}
        for index, message in enumerate((*draft.messages, None)):
            if (number := numbers.get(index)) is not None:
                yield from made_up_step(call_of_the_clock(f"{number:03d}"), clock(self.times[number]))
            if message is not None:
                yield message


def _is_of_the_model(message: DraftMessage) -> bool:
    made_up = any(call.id.startswith(CALL_PREFIX) for call in message.message.tool_calls)
    return message.region is Region.TRAJECTORY and message.message.role == "assistant" and not made_up
