"""What is known of the user in front of the first user message, as it is now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from experiments.faults.base import FaultContext, changed_at, first_user, with_text_before
from serving.assembler import Draft, Invariant

CALLS_A_CHANGE: Final = 3
_LEARNED: Final = (
    "prefers short answers",
    "writes from Lisbon",
    "works with two colleagues",
    "reads logs before code",
    "is in a hurry on Mondays",
    "keeps dates as year, month, day",
)


@dataclass(frozen=True, slots=True)
class ProfileInFirstMessage:
    """A profile is read anew for every call; when something was learned, all that followed is computed again.

    Here that happens every third call, so two of three calls are untouched.
    """

    call: int
    name: str = "profile-in-first-message"
    breaks: frozenset[Invariant] = frozenset({Invariant.APPEND_ONLY})

    @classmethod
    def build(cls, context: FaultContext) -> ProfileInFirstMessage:
        """The fault for one call."""
        return cls(context.call)

    def apply(self, draft: Draft) -> Draft:
        """The draft with the profile in front of its first user message."""
        changes = self.call // CALLS_A_CHANGE
        lines = [f"- {_LEARNED[place % len(_LEARNED)]}" for place in range(changes + 1)]
        text = "\n".join([f"User profile, revision {changes}:", *lines, "", ""])
        place = first_user(draft)
        return changed_at(draft, place, with_text_before(draft.messages[place], text))
