"""One tool result with the time of day, near the beginning, brought up to date in place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from experiments.faults.base import FaultContext, clock, first_user, made_up_step
from experiments.faults.clock_tool import call_of_the_clock, with_clock_tool
from serving.assembler import Draft, Invariant


@dataclass(frozen=True, slots=True)
class ClockResultRefreshed:
    """Saves the tokens of many clocks and loses the whole conversation: the old result is rewritten each time."""

    now: datetime
    name: str = "clock-result-refreshed"
    breaks: frozenset[Invariant] = frozenset({Invariant.APPEND_ONLY})

    @classmethod
    def build(cls, context: FaultContext) -> ClockResultRefreshed:
        """The fault for one call."""
        return cls(context.now)

    def apply(self, draft: Draft) -> Draft:
        """The draft with a clock call and its result behind the first user message."""
        after = first_user(draft) + 1
        step = made_up_step(call_of_the_clock("refreshed"), clock(self.now))
        messages = (*draft.messages[:after], *step, *draft.messages[after:])
        return replace(with_clock_tool(draft), messages=messages)
