"""The whole conversation flattened into the text of one user message."""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.faults.base import FaultContext, parts_of
from serving.assembler import Draft, DraftMessage, Invariant, LocalSpan, Message, Region


@dataclass(frozen=True, slots=True)
class TextTranscript:
    """Loses roles and call structure; the text grows at its end, so most of the prefix survives."""

    name: str = "text-transcript"
    breaks: frozenset[Invariant] = frozenset({Invariant.STRUCTURE_KEPT})

    @classmethod
    def build(cls, _context: FaultContext) -> TextTranscript:
        """The fault for one call."""
        return cls()

    def apply(self, draft: Draft) -> Draft:
        """The draft with its trajectory as one user message; every part keeps the item that wrote it."""
        parts = parts_of(draft)
        content, spans = "Transcript so far:", []
        for message in parts.trajectory:
            line = _line(message.message)
            owner = message.spans[0].item_id if message.spans else None
            start = len(content) + 1
            content += f"\n{line}"
            if owner is not None:
                spans.append(LocalSpan(("content",), owner, start, len(content)))
        flat = DraftMessage(Message(role="user", content=content), tuple(spans), Region.TRAJECTORY)
        return replace(draft, messages=(*parts.head, flat, *parts.suffix))


def _line(message: Message) -> str:
    calls = "".join(f" [{call.name} {call.arguments}]" for call in message.tool_calls)
    return f"{message.role}: {message.content or ''}{calls}"
