"""Which calls of a streaming answer are complete, while the model still writes the next one."""

from __future__ import annotations

from dataclasses import dataclass, field

from experiments.agent.taggedcalls import TaggedStream
from serving.client import StreamEvent, TextDelta, ToolCallComplete


@dataclass(frozen=True, slots=True)
class StreamedCall:
    """A call whose arguments are complete, valid JSON."""

    position: int
    """Among the calls of the message, from 0."""
    received_id: str | None
    name: str
    arguments: str


@dataclass(slots=True)
class StreamedCalls:
    """Follows one answer. Nothing in a stream marks a call's end: closed JSON does, or the closing tag.

    Calls in fences or bare are seen at the end only, for a brace may close in the middle of an explanation.
    """

    token_in: bool
    """Whether the text is the model's own, tags and all (`taggedcalls.py`), or a server took calls out."""
    _tagged: TaggedStream = field(default_factory=TaggedStream)
    _count: int = 0

    def feed(self, event: StreamEvent) -> list[StreamedCall]:
        """The calls that this event completed."""
        if self.token_in and isinstance(event, TextDelta):
            found = self._tagged.feed(event.text)
            self._count += len(found)
            first = self._count - len(found)
            return [
                StreamedCall(first + place, None, call.name, call.arguments)
                for place, call in enumerate(found)
            ]
        if not self.token_in and isinstance(event, ToolCallComplete) and event.call.name:
            call = event.call
            return [StreamedCall(call.index, call.id, event.call.name, call.arguments)]
        return []
