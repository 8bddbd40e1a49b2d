"""Only the last messages of the history are sent."""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.faults.base import FaultContext
from serving.assembler import Draft, Invariant, Region


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Drops the oldest messages, so that each call's history begins elsewhere and nothing behind the head fits.

    Results whose call fell out of the window go with it: that much care even a careless window takes, since
    many servers refuse an orphan.
    """

    messages: int
    name: str
    breaks: frozenset[Invariant] = frozenset({Invariant.APPEND_ONLY, Invariant.REQUIRED_PRESENT})

    @classmethod
    def build(cls, _context: FaultContext) -> SlidingWindow:
        """The fault for one call, with a window of six messages."""
        return cls(6, "sliding-window")

    @classmethod
    def build_of_ten(cls, _context: FaultContext) -> SlidingWindow:
        """The fault for one call, with a window of ten messages."""
        return cls(10, "sliding-window-10")

    def apply(self, draft: Draft) -> Draft:
        """The draft with its head, its suffix, and the last messages of its trajectory."""
        trajectory = [i for i, message in enumerate(draft.messages) if message.region is Region.TRAJECTORY]
        kept = trajectory[-self.messages :]
        while kept and draft.messages[kept[0]].message.role == "tool":
            kept = kept[1:]
        gone = set(trajectory).difference(kept)
        return replace(
            draft,
            messages=tuple(message for i, message in enumerate(draft.messages) if i not in gone),
        )
