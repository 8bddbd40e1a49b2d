"""Tool results are sent as messages of the user."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.faults.base import FaultContext, each_in_trajectory, without_spans_at
from serving.assembler import Draft, DraftMessage, Invariant


@dataclass(frozen=True, slots=True)
class ToolResultAsUser:
    """Each request still extends the one before, and every call stays unanswered.

    Qwen3's template takes each result for a new question and hides the reasoning before it, so what the model
    wrote is not what is sent back: see `reasoning_dropped.py`.
    """

    name: str = "tool-result-as-user"
    breaks: frozenset[Invariant] = frozenset({Invariant.STRUCTURE_KEPT, Invariant.TOOL_CALLS_PAIRED})

    @classmethod
    def build(cls, _context: FaultContext) -> ToolResultAsUser:
        """The fault for one call."""
        return cls()

    def apply(self, draft: Draft) -> Draft:
        """The draft with every tool message as a user message of the same content."""
        return each_in_trajectory(draft, _as_user)


def _as_user(message: DraftMessage) -> DraftMessage:
    if message.message.role != "tool":
        return message
    changed = message.message.model_copy(update={"role": "user", "tool_call_id": None})
    return DraftMessage(changed, without_spans_at(message, "tool_call_id"), message.region)
