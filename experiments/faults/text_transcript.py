"""The whole conversation flattened into the text of one user message."""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.faults.base import FaultContext
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
        content, spans = "Transcript so far:", []
        for message in draft.messages:
            if message.region is not Region.TRAJECTORY:
                continue
            line = _line(message.message)
            owner = message.spans[0].item_id if message.spans else None
            start = len(content) + 1
            content += f"\n{line}"
            if owner is not None:
                spans.append(LocalSpan(("content",), owner, start, len(content)))
        flat = DraftMessage(Message(role="user", content=content), tuple(spans), Region.TRAJECTORY)
        head = [m for m in draft.messages if m.region not in (Region.TRAJECTORY, Region.SUFFIX)]
        suffix = [m for m in draft.messages if m.region is Region.SUFFIX]
        return replace(draft, messages=(*head, flat, *suffix))


def _line(message: Message) -> str:
    calls = "".join(f" [{call.name} {call.arguments}]" for call in message.tool_calls)
    return f"{message.role}: {message.content or ''}{calls}"
