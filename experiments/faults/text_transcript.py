"""The whole conversation flattened into the text of one user message."""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.faults.base import FaultContext, parts_of
from experiments.faults.transcript import flattened
from serving.assembler import Draft, Invariant


@dataclass(frozen=True, slots=True)
class TextTranscript:
    """Loses roles, call structure and reasoning; the text grows at its end, so most of the prefix survives."""

    name: str = "text-transcript"
    breaks: frozenset[Invariant] = frozenset({Invariant.STRUCTURE_KEPT, Invariant.REASONING_ECHOED})

    @classmethod
    def build(cls, _context: FaultContext) -> TextTranscript:
        """The fault for one call."""
        return cls()

    def apply(self, draft: Draft) -> Draft:
        """The draft with its trajectory as one user message."""
        parts = parts_of(draft)
        flat = flattened(parts.trajectory, "Transcript so far:")
        return replace(draft, messages=(*parts.head, flat, *parts.suffix))
