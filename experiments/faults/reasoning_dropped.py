"""What the model thought is not sent back."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.faults.base import FaultContext, each_in_trajectory, without_spans_at
from serving.assembler import Draft, DraftMessage, Invariant


@dataclass(frozen=True, slots=True)
class ReasoningDropped:
    """Each request still extends the one before; but the tokens that the model wrote are not those sent back.

    So the cache, which holds them, is left where the reasoning began, and the model goes on without it.
    """

    name: str = "reasoning-dropped"
    breaks: frozenset[Invariant] = frozenset({Invariant.REASONING_ECHOED})

    @classmethod
    def build(cls, _context: FaultContext) -> ReasoningDropped:
        """The fault for one call."""
        return cls()

    def apply(self, draft: Draft) -> Draft:
        """The draft without any reasoning in its trajectory."""
        return each_in_trajectory(draft, _without_reasoning)


def _without_reasoning(message: DraftMessage) -> DraftMessage:
    changed = message.message.model_copy(update={"reasoning": None})
    return DraftMessage(changed, without_spans_at(message, "reasoning"), message.region)
