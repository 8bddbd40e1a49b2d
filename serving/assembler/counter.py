"""A renderer with given sizes: worked examples and tests count with it, and no tokenizer is needed."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from serving.assembler.items import ContextItem
from serving.assembler.kinds import Carrier
from serving.assembler.messages import FRAMING, Message, MessagePath, PacketSpan, ToolSpec, item_of, leaves
from serving.assembler.record import canonical_json, digest
from serving.assembler.renderer import AddedToken, Rendered, RendererIdentity, TokenSpan

CHARACTERS_PER_TOKEN: Final = 4
"""Size of an item without a given size: one token for every started group of four characters."""


class FixedCounter:
    """A `Renderer` in which an item has the size it was given, wherever and with whomever it is rendered.

    `sizes` maps item ids to tokens. What no item wrote costs nothing but `framing_per_message` for every
    message, as chat templates do. The ids are made up but stable: equal text at an equal offset in an equal
    item has equal ids.
    """

    def __init__(self, sizes: Mapping[str, int] | None = None, *, framing_per_message: int = 0) -> None:
        self._sizes = dict(sizes or {})
        self._framing = framing_per_message
        self._identity = RendererIdentity(
            template_sha256=digest(f"fixed framing={framing_per_message}"),
            tokenizer_sha256=digest(canonical_json(self._sizes)),
            kwargs_sha256=digest(""),
            dialect="fixed-counter",
        )

    @classmethod
    def of(cls, items: Iterable[ContextItem], *, framing_per_message: int = 0) -> FixedCounter:
        """A counter that takes the sizes from the items' own `tokens`."""
        sizes = {item.id: item.tokens for item in items if item.tokens is not None}
        return cls(sizes, framing_per_message=framing_per_message)

    @property
    def identity(self) -> RendererIdentity:
        return self._identity

    @property
    def added_tokens(self) -> tuple[AddedToken, ...]:
        return ()

    @property
    def carrier(self) -> Carrier:
        return Carrier.TAIL_OF_LAST_TOOL_RESULT

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], spans: Sequence[PacketSpan] = ()
    ) -> Rendered:
        ids: list[int] = []
        token_spans: list[TokenSpan] = []
        offsets: list[int] = []
        written: list[str] = []
        position = 0
        spent: set[str] = set()
        for owner, text, size in self._pieces(messages, tools, spans):
            count = size
            if owner in self._sizes:
                # The given size is for the whole item, so only its first piece is charged.
                count = 0 if owner in spent else self._sizes[owner]
                spent.add(owner)
            token_spans.append(TokenSpan(len(ids), len(ids) + count, owner))
            first = zlib.crc32(f"{owner}\0{text}".encode())
            ids.extend(range(first, first + count))
            offsets.extend([position + len(text) * index // count for index in range(count)])
            written.append(text)
            position += len(text)
        return Rendered(tuple(ids), "".join(written), _merged(token_spans), tuple(offsets))

    def _pieces(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], spans: Sequence[PacketSpan]
    ) -> Iterator[tuple[str, str, int]]:
        by_path: dict[MessagePath, list[PacketSpan]] = {}
        for span in spans:
            by_path.setdefault(span.path, []).append(span)
        opened = 0
        for path, text in (*leaves((), tools), *leaves(messages)):
            while path[0] == "messages" and isinstance(path[1], int) and opened <= path[1]:
                yield FRAMING, "", self._framing
                opened += 1
            found = next((by_path[path[:n]] for n in range(len(path), 0, -1) if path[:n] in by_path), [])
            reached = 0
            for span in sorted(found, key=lambda span: span.start):
                end = len(text) if span.end is None else min(span.end, len(text))
                if span.start > reached:
                    yield FRAMING, text[reached : span.start], 0
                yield item_of(span.item_id), text[span.start : end], _size(end - span.start)
                reached = end
            if reached < len(text):
                yield FRAMING, text[reached:], 0
        yield FRAMING, "", self._framing * (len(messages) - opened)


def _size(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN)


def _merged(spans: Sequence[TokenSpan]) -> tuple[TokenSpan, ...]:
    merged: list[TokenSpan] = []
    for owner, run in groupby(
        (span for span in spans if span.end > span.start), key=lambda span: span.item_id
    ):
        parts = list(run)
        merged.append(TokenSpan(parts[0].start, parts[-1].end, owner))
    return tuple(merged)
