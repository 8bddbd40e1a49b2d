"""Where two packets part, to the byte, and where two renderings part, to the token: what a cache loses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import zip_longest

from serving.assembler.messages import FRAMING, Message, MessagePath, PacketSpan, ToolSpec, item_of
from serving.assembler.packet import Packet
from serving.assembler.record import Record
from serving.assembler.renderer import Rendered


class FirstByte(Record):
    """The first string that differs, tools before messages, and the first byte of it that does.

    `byte` counts UTF-8. A side's item is None where that side has ended, and `framing` where no item wrote.
    """

    path: MessagePath
    byte: int
    before_item: str | None
    after_item: str | None

    def swapped(self) -> FirstByte:
        """Seen from the other side."""
        return self.model_copy(update={"before_item": self.after_item, "after_item": self.before_item})

    def __str__(self) -> str:
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        return (
            f"first byte that differs: {place.removeprefix('.')} byte {self.byte} "
            f"({self.before_item or 'end'} → {self.after_item or 'end'})"
        )


class FirstToken(Record):
    """The first token that differs, and so how many the two prompts share.

    An item is None where that side has ended.
    """

    token: int
    before_item: str | None
    after_item: str | None
    before_tokens: int
    after_tokens: int

    def swapped(self) -> FirstToken:
        """Seen from the other side."""
        return FirstToken(
            token=self.token,
            before_item=self.after_item,
            after_item=self.before_item,
            before_tokens=self.after_tokens,
            after_tokens=self.before_tokens,
        )

    def __str__(self) -> str:
        return (
            f"first token that differs: {self.token} of {self.before_tokens} → {self.after_tokens} "
            f"({self.before_item or 'end'} → {self.after_item or 'end'})"
        )


def first_byte_that_differs(before: Packet, after: Packet) -> FirstByte | None:
    """Compare tools and messages as sent, in packet order; None: they are the same bytes."""
    for was, now in zip_longest(_strings(before), _strings(after)):
        if was == now:
            continue
        # A string that only one side has stands where the other has ended, or has another field.
        there = [place for place in (was, now) if place is not None]
        path = min((place[0] for place in there), key=_order)
        old, new = (place[1] if place is not None and place[0] == path else None for place in (was, now))
        byte = _shared(old.encode(), new.encode()) if old is not None and new is not None else 0
        return FirstByte(
            path=path,
            byte=byte,
            before_item=_owner(before.spans, path, old, byte),
            after_item=_owner(after.spans, path, new, byte),
        )
    return None


def first_token_that_differs(before: Rendered, after: Rendered) -> FirstToken | None:
    """Compare token ids from the front; None: they are the same prompt."""
    if before.token_ids == after.token_ids:
        return None
    pairs = zip(before.token_ids, after.token_ids, strict=False)
    shorter = min(len(before.token_ids), len(after.token_ids))
    at = next((index for index, (was, now) in enumerate(pairs) if was != now), shorter)
    return FirstToken(
        token=at,
        before_item=_token_owner(before, at),
        after_item=_token_owner(after, at),
        before_tokens=len(before.token_ids),
        after_tokens=len(after.token_ids),
    )


_FIELDS = ("name", "description", "parameters", "role", "reasoning", "content", "tool_call_id", "tool_calls")


def _strings(packet: Packet) -> Iterator[tuple[MessagePath, str]]:
    for index, tool in enumerate(packet.tools):
        yield from _tool_strings(("tools", index), tool)
    for index, message in enumerate(packet.messages):
        yield from _message_strings(("messages", index), message)


def _tool_strings(here: MessagePath, tool: ToolSpec) -> Iterator[tuple[MessagePath, str]]:
    yield (*here, "name"), tool.name
    yield (*here, "description"), tool.description
    # Key order is part of the bytes, so it is kept.
    yield (*here, "parameters"), json.dumps(tool.parameters, ensure_ascii=False)


def _message_strings(here: MessagePath, message: Message) -> Iterator[tuple[MessagePath, str]]:
    for name in ("name", "role", "reasoning", "content", "tool_call_id"):
        if (text := getattr(message, name)) is not None:
            yield (*here, name), text
    for place, call in enumerate(message.tool_calls):
        for name in ("id", "name", "arguments"):
            yield (*here, "tool_calls", place, name), getattr(call, name)


def _order(path: MessagePath) -> tuple[bool, int, int, str]:
    """Packet order of two places, the same from either side."""
    index = path[1] if isinstance(path[1], int) else 0
    return (path[0] == "messages", index, _FIELDS.index(str(path[2])), str(path[3:]))


def _shared(was: bytes, now: bytes) -> int:
    return next(
        (index for index, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), min(len(was), len(now))
    )


def _owner(spans: tuple[PacketSpan, ...], path: MessagePath, text: str | None, byte: int) -> str | None:
    if text is None or byte >= max(1, len(text.encode())):
        return None
    # The byte may lie inside a character: that character is the one that differs.
    at = len(text.encode()[:byte].decode(errors="ignore"))
    for span in spans:
        covers = path[: len(span.path)] == span.path
        if covers and span.start <= at and (span.end is None or at < span.end):
            return item_of(span.item_id)
    # No item writes a role; the message is that of the item that wrote its first text.
    below = (item_of(span.item_id) for span in spans if path[2] == "role" and span.path[:2] == path[:2])
    return next(below, FRAMING)


def _token_owner(rendered: Rendered, at: int) -> str | None:
    return next((item_of(span.item_id) for span in rendered.spans if span.start <= at < span.end), None)
