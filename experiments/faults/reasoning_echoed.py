"""All reasoning is sent back as text, also where the policy or the template drops it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from experiments.faults.base import CONTENT, FaultContext, each_in_trajectory, without_spans_at
from serving.assembler import Draft, DraftMessage, Invariant, LocalSpan


@dataclass(frozen=True, slots=True)
class ReasoningEchoed:
    """Keeps a prefix that a template such as Qwen3's gives up at the next user turn, and pays for every old thought.

    The thought stands as `<think>` text in front of the answer, and the reasoning field is sent empty: a
    template that would read the text back into that field, and drop it, then leaves it alone. In the running
    tool loop the bytes are those of the field.
    """

    reasoning: Mapping[str, str]
    """Item id → reasoning, for what the policy left out; what the draft holds needs no entry."""
    name: str = "reasoning-echoed"
    breaks: frozenset[Invariant] = frozenset({Invariant.REASONING_ECHOED, Invariant.STRUCTURE_KEPT})

    @classmethod
    def build(cls, context: FaultContext) -> ReasoningEchoed:
        """The fault for one call."""
        return cls(context.reasoning)

    def apply(self, draft: Draft) -> Draft:
        """The draft with the reasoning of every message of the model inside its content."""
        return each_in_trajectory(draft, self._echoed)

    def _echoed(self, message: DraftMessage) -> DraftMessage:
        owner = message.spans[0].item_id if message.spans else ""
        thought = message.message.reasoning or self.reasoning.get(owner)
        if message.message.role != "assistant" or not thought:
            return message
        content = message.message.content or ""
        opening, closing = "<think>\n", "\n</think>\n"
        if content:  # without an answer, templates break the line before the call themselves
            closing += "\n"
        before = len(opening) + len(thought) + len(closing)
        changed = message.message.model_copy(
            update={"content": f"{opening}{thought}{closing}{content}", "reasoning": ""}
        )
        spans = (
            LocalSpan(CONTENT, owner, len(opening), len(opening) + len(thought)),
            *(
                span.moved(before) if span.path == CONTENT else span
                for span in without_spans_at(message, "reasoning")
            ),
        )
        return DraftMessage(changed, spans, message.region)
