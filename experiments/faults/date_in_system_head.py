"""Today's date as the first words of the system prompt."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from experiments.faults.base import FaultContext, changed_at, with_text_before
from serving.assembler import Draft, Invariant


@dataclass(frozen=True, slots=True)
class DateInSystemHead:
    """Costs nothing all day and everything at midnight: the clock's milder sister, which few take for a fault."""

    today: date
    name: str = "date-in-system-head"
    breaks: frozenset[Invariant] = frozenset({Invariant.STATIC_HEAD})

    @classmethod
    def build(cls, context: FaultContext) -> DateInSystemHead:
        """The fault for one call."""
        return cls(context.now.date())

    def apply(self, draft: Draft) -> Draft:
        """The draft with the date in front of its first message."""
        return changed_at(draft, 0, with_text_before(draft.messages[0], f"Today is {self.today:%Y-%m-%d}.\n"))
