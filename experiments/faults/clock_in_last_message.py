"""The time of day at the end of the last message."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from experiments.faults.base import FaultContext, changed_at, clock, with_text_after
from serving.assembler import Draft, Invariant


@dataclass(frozen=True, slots=True)
class ClockInLastMessage:
    """Changes only the end; but the next call sends the same message without its clock."""

    now: datetime
    name: str = "clock-in-last-message"
    breaks: frozenset[Invariant] = frozenset({Invariant.APPEND_ONLY})

    @classmethod
    def build(cls, context: FaultContext) -> ClockInLastMessage:
        """The fault for one call."""
        return cls(context.now)

    def apply(self, draft: Draft) -> Draft:
        """The draft with the clock behind its last message."""
        last = len(draft.messages) - 1
        return changed_at(draft, last, with_text_after(draft.messages[last], f"\n{clock(self.now)}"))
