"""From the origin of every character to the item of every token."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from serving.assembler.messages import FRAMING, MessagePath, PacketSpan
from serving.assembler.renderer import CoarseReason, TokenSpan
from serving.chat.traced import BLURRED, LOST, Leaf, Run, runs_of
from serving.errors import UsageError

_IN_FUNCTION = ("name", "description", "parameters", "arguments")


class TextSpan(NamedTuple):
    """Characters [start, end) of the rendered text belong to `item_id`."""

    start: int
    end: int
    item_id: str


class Located(NamedTuple):
    """The items' characters (sorted, disjoint; the rest is framing), and what made them coarse."""

    spans: tuple[TextSpan, ...]
    coarse: CoarseReason | None


def body_path(path: MessagePath) -> MessagePath:
    """The path in the request body: `name`, `arguments` … of a tool or call lie under its `function`."""
    depth = 2 if path[:1] == ("tools",) else 4 if path[2:3] == ("tool_calls",) else len(path)
    if len(path) > depth and path[depth] in _IN_FUNCTION:
        return (*path[:depth], "function", *path[depth:])
    return path


def check_spans(spans: Sequence[PacketSpan], body: Mapping[str, object]) -> None:
    """Raises: UsageError for a path that is not in the body, or characters that its string does not have."""
    for span in spans:
        value: object = body
        for part in body_path(span.path):
            try:
                value = value[part]  # type: ignore[index]
            except (KeyError, IndexError, TypeError) as error:
                raise UsageError(
                    f"Expected span {span.item_id!r} to name a place in the packet, got {span.path!r}, where "
                    f"{part!r} is absent. Build spans from the same messages and tools that are rendered."
                ) from error
        if span.start == 0 and span.end is None:
            continue
        length = len(value) if isinstance(value, str) else -1
        end = length if span.end is None else span.end
        if not 0 <= span.start <= end <= length:
            raise UsageError(
                f"Expected span {span.item_id!r} inside the string at {span.path!r} of {length} characters "
                f"(-1: no string), got [{span.start}, {span.end}). Correct the range."
            )


def locate(text: str, spans: Sequence[PacketSpan]) -> Located:
    """The characters of each item in a traced render; the narrowest span that covers a character has it.

    Text between two characters that one span covers belongs to that span too (keys, brackets, the literal
    text of the template inside a tool call), as long as nothing of another origin lies between.
    """
    index = _Index(spans)
    found: list[TextSpan] = []
    coarse: CoarseReason | None = None
    position = 0
    previous: tuple[int, ...] = ()
    gap_start = 0
    for run in runs_of(text):
        if run.leaf is None:
            position += run.length
            continue
        if run.leaf == LOST:
            coarse = CoarseReason.ORIGIN_LOST
        elif run.offset == BLURRED and coarse is None and index.covering(run.leaf):
            coarse = CoarseReason.LEAF_BLURRED
        for length, covering in index.split(run):
            if gap_start < position:
                bridge = next((span for span in covering if span in previous), None)
                if bridge is not None:
                    _append(found, gap_start, position, spans[bridge].item_id)
            if covering:
                _append(found, position, position + length, spans[covering[0]].item_id)
            position += length
            previous, gap_start = covering, position
    return Located(tuple(found), coarse)


def _append(found: list[TextSpan], start: int, end: int, item_id: str) -> None:
    if found and found[-1].end == start and found[-1].item_id == item_id:
        found[-1] = TextSpan(found[-1].start, end, item_id)
    elif start < end:
        found.append(TextSpan(start, end, item_id))


class _Index:
    """Which spans cover a leaf's characters, narrowest first."""

    def __init__(self, spans: Sequence[PacketSpan]) -> None:
        self._spans = spans
        self._whole = [span.start == 0 and span.end is None for span in spans]
        self._by_path: dict[MessagePath, list[int]] = {}
        for number, span in enumerate(spans):
            self._by_path.setdefault(body_path(span.path), []).append(number)
        self._depths = sorted({len(path) for path in self._by_path}, reverse=True)
        self._cache: dict[Leaf, tuple[int, ...]] = {}

    def split(self, run: Run) -> Sequence[tuple[int, tuple[int, ...]]]:
        """The run in pieces (length, covering spans) that lie wholly inside or outside every span."""
        assert run.leaf is not None
        covering = self.covering(run.leaf)
        if all(self._whole[number] for number in covering):
            return ((run.length, covering),)
        cuts = {run.offset, run.offset + run.length}
        if run.offset >= 0:
            bounds = [edge for number in covering for edge in self._edges(number)]
            cuts |= {edge for edge in bounds if run.offset < edge < run.offset + run.length}
        ordered = sorted(cuts)
        return [
            (high - low, tuple(number for number in covering if self._covers(number, run, low)))
            for low, high in itertools.pairwise(ordered)
        ]

    def covering(self, leaf: Leaf) -> tuple[int, ...]:
        """The spans that cover the leaf or a part of it, narrowest first."""
        if leaf not in self._cache:
            path = leaf.path
            numbers: list[int] = []
            for depth in self._depths:
                here = self._by_path.get(path[:depth], []) if depth <= len(path) else []
                for number in here:
                    if depth < len(path) and not self._whole[number]:
                        raise UsageError(
                            f"Expected span {self._spans[number].item_id!r} to cover all of "
                            f"{self._spans[number].path!r}, which the server re-serialises, got a part. "
                            "Name the whole value."
                        )
                # Among spans of one path a partial one is narrower than the whole.
                numbers += sorted(here, key=self._whole.__getitem__) if len(here) > 1 else here
            self._cache[leaf] = tuple(numbers)
        return self._cache[leaf]

    def _edges(self, number: int) -> tuple[int, ...]:
        span = self._spans[number]
        return () if self._whole[number] else (span.start, *(() if span.end is None else (span.end,)))

    def _covers(self, number: int, run: Run, offset: int) -> bool:
        if self._whole[number]:
            return True
        span = self._spans[number]
        # Structure and blurred text have no position, so only whole spans take them.
        return run.offset >= 0 and span.start <= offset and (span.end is None or offset < span.end)


def token_spans(starts: Sequence[int], located: Sequence[TextSpan]) -> tuple[TokenSpan, ...]:
    """Every token by the character of its first byte; sorted, disjoint, covering all tokens."""
    spans: list[TokenSpan] = []

    def add(end: int, item_id: str) -> None:
        begin = spans[-1].end if spans else 0
        if spans and spans[-1].item_id == item_id:
            spans[-1] = TokenSpan(spans[-1].start, end, item_id)
        elif begin < end:
            spans.append(TokenSpan(begin, end, item_id))

    for span in located:
        # Tokens of one character, cut inside it, start at the same place and stay together.
        add(bisect_left(starts, span.start), FRAMING)
        add(bisect_left(starts, span.end), span.item_id)
    add(len(starts), FRAMING)
    assert sum(span.end - span.start for span in spans) == len(starts)
    return tuple(spans)
