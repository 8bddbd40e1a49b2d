"""A second system message at the end of the conversation, to remind the model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from experiments.faults.base import FaultContext, trajectory_end
from serving.assembler import Draft, DraftMessage, Invariant, Message, Region

REMINDER: Final = "Remember: one step at a time, and never guess."


@dataclass(frozen=True, slots=True)
class LateSystemMessage:
    """Stands behind the newest message, and the next call sends that message without it: the tail is lost.

    Some templates refuse a second system message, and some move it to the first, where it costs all.
    """

    name: str = "late-system-message"
    breaks: frozenset[Invariant] = frozenset({Invariant.ONE_SYSTEM_MESSAGE, Invariant.APPEND_ONLY})

    @classmethod
    def build(cls, _context: FaultContext) -> LateSystemMessage:
        """The fault for one call."""
        return cls()

    def apply(self, draft: Draft) -> Draft:
        """The draft with the reminder behind its trajectory."""
        end = trajectory_end(draft)
        late = DraftMessage(Message(role="system", content=REMINDER), (), Region.TRAJECTORY)
        return replace(draft, messages=(*draft.messages[:end], late, *draft.messages[end:]))
