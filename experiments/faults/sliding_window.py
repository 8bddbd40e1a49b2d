"""Only the last messages of the history are sent."""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.faults.base import FaultContext, parts_of
from serving.assembler import Draft, Invariant

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
        parts = parts_of(draft)
        kept = parts.trajectory[-self.messages :]
        while kept and kept[0].message.role == "tool":
            kept = kept[1:]
        return replace(draft, messages=(*parts.head, *kept, *parts.suffix))
