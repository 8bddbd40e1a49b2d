"""The time of day as the first words of the system prompt."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from experiments.faults.base import FaultContext, changed_at, clock, with_text_before
from serving.assembler import Draft, Invariant


@dataclass(frozen=True, slots=True)
class ClockInSystemHead:
    """Changes the first message in every call, so nothing behind it can be reused."""

    now: datetime
    name: str = "clock-in-system-head"
    breaks: frozenset[Invariant] = frozenset({Invariant.STATIC_HEAD})

    @classmethod
    def build(cls, context: FaultContext) -> ClockInSystemHead:
        """The fault for one call."""
        return cls(context.now)

    def apply(self, draft: Draft) -> Draft:
        """The draft with the clock in front of its first message."""
        return changed_at(draft, 0, with_text_before(draft.messages[0], f"{clock(self.now)}\n"))
