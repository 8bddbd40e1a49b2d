"""The conversation as one text that begins with how long it is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.faults.base import FaultContext, parts_of
from experiments.faults.transcript import flattened
from serving.assembler import Draft, Invariant


@dataclass(frozen=True, slots=True)
class TextTranscriptMovingHead:
    """The stable transcript but for a number in its first line, behind which nothing is reused."""

    name: str = "text-transcript-moving-head"
    breaks: frozenset[Invariant] = frozenset(
        {Invariant.STRUCTURE_KEPT, Invariant.REASONING_ECHOED, Invariant.APPEND_ONLY}
    )

    @classmethod
    def build(cls, _context: FaultContext) -> TextTranscriptMovingHead:
        """The fault for one call."""
        return cls()

    def apply(self, draft: Draft) -> Draft:
        """The draft with its trajectory as one user message that counts its lines first."""
        parts = parts_of(draft)
        flat = flattened(parts.trajectory, f"The last {len(parts.trajectory)} messages:")
        return replace(draft, messages=(*parts.head, flat, *parts.suffix))
