"""A profile with a counter in front of the first user message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from experiments.faults.base import FaultContext, changed_at, first_user, with_text_before
from serving.assembler import Draft, Invariant

CREDITS: Final = 1000
"""With which every run begins; each call takes one."""


@dataclass(frozen=True, slots=True)
class ProfileCounterInFirstMessage:
    """One number that nobody asked for changes in every call, in front of the whole conversation."""

    call: int
    name: str = "profile-counter-in-first-message"
    breaks: frozenset[Invariant] = frozenset({Invariant.APPEND_ONLY})

    @classmethod
    def build(cls, context: FaultContext) -> ProfileCounterInFirstMessage:
        """The fault for one call."""
        return cls(context.call)

    def apply(self, draft: Draft) -> Draft:
        """The draft with the profile and its counter in front of its first user message."""
        place = first_user(draft)
        text = f"User profile: plan basic, credits left {CREDITS - self.call}.\n\n"
        return changed_at(draft, place, with_text_before(draft.messages[place], text))
