"""A packet while it is being laid out: every message carries its own spans and can be moved with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from serving.assembler.kinds import Region
from serving.assembler.messages import Message, MessagePath, PacketSpan, Role, ToolSpec


@dataclass(frozen=True, slots=True)
class LocalSpan:
    """Characters [start, end) of a leaf of one message; `path` starts below the message: ("content",)."""

    path: MessagePath
    item_id: str
    start: int = 0
    end: int | None = None

    def moved(self, characters: int) -> LocalSpan:
        """The span of the same text with `characters` more in front of it."""
        return replace(
            self, start=self.start + characters, end=None if self.end is None else self.end + characters
        )


@dataclass(frozen=True, slots=True)
class DraftMessage:
    """A message, the items behind its leaves, and the region it was laid out in."""

    message: Message
    spans: tuple[LocalSpan, ...]
    region: Region

    @classmethod
    def whole(cls, message: Message, item_id: str, region: Region) -> DraftMessage:
        """A message that one item wrote alone."""
        paths: list[MessagePath] = [
            (name,) for name in ("content", "reasoning", "tool_call_id", "name") if getattr(message, name)
        ]
        paths.extend(("tool_calls", index) for index in range(len(message.tool_calls)))
        return cls(message, tuple(LocalSpan(path, item_id) for path in paths), region)

    @classmethod
    def of_parts(cls, role: Role, parts: Iterable[TextPart], region: Region, joint: str) -> DraftMessage:
        """A message whose content is `parts` joined by `joint`, which belongs to no item."""
        return cls(Message(role=role, content=""), (), region).extended(parts, joint)

    def extended(self, parts: Iterable[TextPart], joint: str) -> DraftMessage:
        """The message with `parts` at the end of its content; what it had keeps its spans."""
        content = self.message.content or ""
        # A span that ran to the end of the leaf now ends where the leaf did.
        spans = [
            replace(span, end=len(content)) if span.path == ("content",) and span.end is None else span
            for span in self.spans
        ]
        texts = [content] if content else []
        length = len(content)
        for part in parts:
            start = length + len(joint) if texts else 0
            length = start + len(part.text)
            texts.append(part.text)
            spans.append(LocalSpan(("content",), part.item_id, start, length))
        changed = self.message.model_copy(update={"content": joint.join(texts)})
        return DraftMessage(changed, tuple(spans), self.region)


@dataclass(frozen=True, slots=True)
class TextPart:
    """A text and the item that wrote it."""

    text: str
    item_id: str


@dataclass(frozen=True, slots=True)
class DraftTool:
    """A tool as sent, and its contract's item id."""

    spec: ToolSpec
    item_id: str


@dataclass(frozen=True)
class Draft:
    """A laid-out request; faults turn one draft into another before it becomes a packet."""

    messages: tuple[DraftMessage, ...]
    tools: tuple[DraftTool, ...]

    def plain_messages(self) -> tuple[Message, ...]:
        """The messages without their spans."""
        return tuple(draft.message for draft in self.messages)

    def plain_tools(self) -> tuple[ToolSpec, ...]:
        """The tools without their item ids."""
        return tuple(tool.spec for tool in self.tools)

    def spans(self) -> tuple[PacketSpan, ...]:
        """All spans with packet paths, tools last."""
        return self._spans

    @cached_property
    def _spans(self) -> tuple[PacketSpan, ...]:
        spans = [
            PacketSpan(
                path=("messages", index, *span.path), start=span.start, end=span.end, item_id=span.item_id
            )
            for index, draft in enumerate(self.messages)
            for span in draft.spans
        ]
        spans.extend(
            PacketSpan(path=("tools", index), item_id=tool.item_id) for index, tool in enumerate(self.tools)
        )
        return tuple(spans)
