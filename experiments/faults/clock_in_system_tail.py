"""The time of day as the last words of the system prompt."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from experiments.faults.base import FaultContext, changed_at, clock, with_text_after
from serving.assembler import Draft, Invariant


@dataclass(frozen=True, slots=True)
class ClockInSystemTail:
    """Saves the system prompt alone: most templates print the tools behind it, and those are lost with the rest."""

    now: datetime
    name: str = "clock-in-system-tail"
    breaks: frozenset[Invariant] = frozenset({Invariant.STATIC_HEAD})

    @classmethod
    def build(cls, context: FaultContext) -> ClockInSystemTail:
        """The fault for one call."""
        return cls(context.now)

    def apply(self, draft: Draft) -> Draft:
        """The draft with the clock behind its first message."""
        return changed_at(draft, 0, with_text_after(draft.messages[0], f"\n{clock(self.now)}"))
