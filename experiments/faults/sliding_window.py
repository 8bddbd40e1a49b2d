"""Only the last messages of the history are sent."""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.faults.base import FaultContext
from serving.assembler import Draft, DraftMessage, Invariant, Region

WINDOW = 6


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Drops the oldest messages, so that each call's history begins elsewhere and nothing behind the head fits.

    Results whose call fell out of the window go with it: that much care even a careless window takes, since
    many servers refuse an orphan.
    """

    messages: int = WINDOW
    name: str = "sliding-window"
    breaks: frozenset[Invariant] = frozenset({Invariant.APPEND_ONLY, Invariant.REQUIRED_PRESENT})

    @classmethod
    def build(cls, _context: FaultContext) -> SlidingWindow:
        """The fault for one call."""
        return cls()

    def apply(self, draft: Draft) -> Draft:
        """The draft with its head and the last messages of its trajectory."""
        head = [message for message in draft.messages if message.region is not Region.TRAJECTORY]
        trajectory = [message for message in draft.messages if message.region is Region.TRAJECTORY]
        kept = trajectory[-self.messages :]
        while kept and kept[0].message.role == "tool":
            kept = kept[1:]
        before, after = _around(head)
        return replace(draft, messages=(*before, *kept, *after))


def _around(others: list[DraftMessage]) -> tuple[list[DraftMessage], list[DraftMessage]]:
    """What stands before the trajectory, and the dynamic suffix behind it."""
    suffix = [message for message in others if message.region is Region.SUFFIX]
    return [message for message in others if message.region is not Region.SUFFIX], suffix
