"""The time of day at the end of the user's latest message."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from experiments.faults.base import FaultContext, changed_at, clock, with_text_after
from serving.assembler import Draft, Invariant, Region


@dataclass(frozen=True, slots=True)
class ClockInLastUserMessage:
    """Looks like a change at the end; in a tool loop the question stands far from it, and all steps are lost."""

    now: datetime
    name: str = "clock-in-last-user-message"
    breaks: frozenset[Invariant] = frozenset({Invariant.APPEND_ONLY})

    @classmethod
    def build(cls, context: FaultContext) -> ClockInLastUserMessage:
        """The fault for one call."""
        return cls(context.now)

    def apply(self, draft: Draft) -> Draft:
        """The draft with the clock behind the last user turn; unchanged where there is none."""
        turns = [
            index
            for index, message in enumerate(draft.messages)
            if message.region is Region.TRAJECTORY and message.message.role == "user"
        ]
        if not turns:
            return draft
        return changed_at(
            draft, turns[-1], with_text_after(draft.messages[turns[-1]], f"\n{clock(self.now)}")
        )
