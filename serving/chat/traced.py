"""A string that knows, for each of its characters, which string of the request it came from.

Templates slice, strip, split and join; a string type that carries origins through these operations
behaves exactly like the plain one, so the template takes the same branches. Markers inserted into the
text would not: `startswith`, `strip` and `split` see them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, SupportsIndex

from pydantic import JsonValue

from serving.assembler.packet import MessagePath


class Leaf(NamedTuple):
    """A string of the request body, or a container whose punctuation is printed, by its path."""

    path: MessagePath


LOST = Leaf(("?",))
"""The origin of text that one operation made out of several leaves."""

STRUCTURE = -1
"""Offset of keys, quotes and brackets: part of a container, no character of any string."""

BLURRED = -2
"""Offset of text that an operation rewrote: from that leaf, position in it unknown."""


class Run(NamedTuple):
    """`length` characters from `leaf`, beginning at its character `offset` (or STRUCTURE, BLURRED)."""

    length: int
    leaf: Leaf | None
    offset: int


def runs_of(text: str) -> tuple[Run, ...]:
    """The origins of `text`, in order; their lengths sum to `len(text)`. A plain string has none."""
    if isinstance(text, Traced):
        return text.runs
    return (Run(len(text), None, STRUCTURE),) if text else ()


def _compact(runs: Iterable[Run]) -> tuple[Run, ...]:
    merged: list[Run] = []
    for run in runs:
        if not run.length:
            continue
        # Runs of one leaf are rarely neighbours; the rest is not worth a call.
        if merged and run.leaf == merged[-1].leaf and _follows(merged[-1], run):
            last = merged[-1]
            merged[-1] = Run(last.length + run.length, last.leaf, last.offset)
        else:
            merged.append(run)
    return tuple(merged)


def _follows(last: Run, run: Run) -> bool:
    return run.leaf == last.leaf and run.offset == (
        last.offset if last.offset < 0 else last.offset + last.length
    )


def _glued(first: tuple[Run, ...], second: tuple[Run, ...]) -> tuple[Run, ...]:
    """Both in a row; each is compact already, so only the seam can be joined."""
    if first and second and _follows(first[-1], second[0]):
        last = first[-1]
        return (*first[:-1], Run(last.length + second[0].length, last.leaf, last.offset), *second[1:])
    return first + second


def cut(runs: Sequence[Run], start: int, end: int) -> list[Run]:
    """The origins of characters [start, end) of the text that `runs` describe."""
    found = []
    position = 0
    for length, leaf, offset in runs:
        low, high = max(start, position), min(end, position + length)
        if low < high:
            found.append(Run(high - low, leaf, offset if offset < 0 else offset + low - position))
        position += length
        if position >= end:
            break
    return found


class Traced(str):
    """A `str` with origins; equal to, and hashed like, the plain string of the same characters."""

    __slots__ = ("runs",)
    runs: tuple[Run, ...]

    def __new__(cls, text: str, runs: Iterable[Run]) -> Traced:
        return cls._of(text, _compact(runs))

    @classmethod
    def _of(cls, text: str, compact: tuple[Run, ...]) -> Traced:
        self = str.__new__(cls, text)
        self.runs = compact
        return self

    @classmethod
    def whole(cls, text: str, path: MessagePath) -> Traced:
        """All of `text` is the leaf at `path`."""
        return cls._of(text, (Run(len(text), Leaf(path), 0),) if text else ())

    def _slice(self, start: int, end: int) -> Traced:
        if start == 0 and end == len(self):
            return self
        return Traced._of(str.__getitem__(self, slice(start, end)), tuple(cut(self.runs, start, end)))

    # `str(x)` on a subclass would otherwise drop the origins; jinja2 calls it on everything it prints.
    def __str__(self) -> str:
        return self

    def __add__(self, other: str) -> str:
        if not isinstance(other, str):
            return NotImplemented
        return Traced._of(str.__add__(self, other), _glued(self.runs, runs_of(other)))

    # Python tries a subclass's reflected method first, so "literal" + traced comes here.
    def __radd__(self, other: str) -> str:
        if not isinstance(other, str):
            return NotImplemented
        return Traced._of(str.__add__(other, self), _glued(runs_of(other), self.runs))

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        text = str.__getitem__(self, key)
        if isinstance(key, slice):
            start, end, step = key.indices(len(self))
            if step != 1:
                indices = range(start, end, step)
                return Traced(text, [run for i in indices for run in cut(self.runs, i, i + 1)])
            return Traced(text, cut(self.runs, start, end))
        index = range(len(self))[key]
        return Traced(text, cut(self.runs, index, index + 1))

    def __iter__(self) -> Iterator[str]:
        return (self._slice(i, i + 1) for i in range(len(self)))

    def strip(self, chars: str | None = None, /) -> str:
        start = len(self) - len(str.lstrip(self, chars))
        return self._slice(start, max(start, len(str.rstrip(self, chars))))

    def lstrip(self, chars: str | None = None, /) -> str:
        return self._slice(len(self) - len(str.lstrip(self, chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> str:
        return self._slice(0, len(str.rstrip(self, chars)))

    def removeprefix(self, prefix: str, /) -> str:
        return self._slice(len(self) - len(str.removeprefix(self, prefix)), len(self))

    def removesuffix(self, suffix: str, /) -> str:
        return self._slice(0, len(str.removesuffix(self, suffix)))

    def _locate(self, pieces: Sequence[str], separator: str | None) -> list[str]:
        located: list[str] = []
        position = 0
        for piece in pieces:
            if separator is None:
                # Between whitespace-separated pieces lies only whitespace, so the first match is the piece.
                position = str.find(self, piece, position)
            located.append(self._slice(position, position + len(piece)))
            position += len(piece) + len(separator or "")
        return located

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._locate(str.split(self, sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._locate(str.rsplit(self, sep, maxsplit), sep)

    def splitlines(self, keepends: bool = False) -> list[str]:
        lines: list[str] = []
        position = 0
        for bare, kept in zip(str.splitlines(self), str.splitlines(self, keepends=True), strict=True):
            lines.append(self._slice(position, position + len(kept if keepends else bare)))
            position += len(kept)
        return lines

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        return self._three(str.partition(self, sep))

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        return self._three(str.rpartition(self, sep))

    def _three(self, parts: tuple[str, str, str]) -> tuple[str, str, str]:
        first, second = len(parts[0]), len(parts[0]) + len(parts[1])
        return self._slice(0, first), self._slice(first, second), self._slice(second, len(self))

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> str:
        if not old:
            return adopt(str.replace(self, old, new, count), (self, new))
        return join(new, self.split(old, count))

    def join(self, iterable: Iterable[str], /) -> str:
        return join(self, iterable)

    def upper(self) -> str:
        return self._recased(str.upper(self))

    def lower(self) -> str:
        return self._recased(str.lower(self))

    def title(self) -> str:
        return self._recased(str.title(self))

    def capitalize(self) -> str:
        return self._recased(str.capitalize(self))

    def _recased(self, text: str) -> str:
        # "ß".upper() is "SS": positions move, so only the leaf is known.
        return Traced(text, self.runs) if len(text) == len(self) else adopt(text, self)


def join(separator: str, pieces: Iterable[str]) -> str:
    """`separator.join(pieces)` with origins; a plain string when nothing in it is traced."""
    parts = list(pieces)
    text = str.join(separator, parts)
    if not isinstance(separator, Traced) and not any(isinstance(part, Traced) for part in parts):
        return text
    runs: list[Run] = []
    between = runs_of(separator)
    for index, part in enumerate(parts):
        if index and between:
            runs += between
        runs += runs_of(part)
    return Traced(text, runs)


def concat(pieces: Iterable[str]) -> str:
    """The pieces in a row, with origins."""
    return join("", pieces)


def leaves_in(value: object) -> set[Leaf]:
    """The leaves that strings in `value` (a string, or nested lists, tuples and mappings) come from."""
    if isinstance(value, Traced):
        return {run.leaf for run in value.runs if run.leaf is not None}
    if isinstance(value, dict):
        return {leaf for pair in value.items() for part in pair for leaf in leaves_in(part)}
    if isinstance(value, list | tuple):
        return {leaf for part in value for leaf in leaves_in(part)}
    return set()


def adopt(text: str, sources: object) -> str:
    """Give `text`, made by an operation that knows no origins, the one leaf of its sources, or LOST."""
    leaves = leaves_in(sources)
    if not leaves or not text:
        return text
    leaf = next(iter(leaves)) if len(leaves) == 1 else LOST
    return Traced(text, (Run(len(text), leaf, BLURRED),))


def trace(value: JsonValue, path: MessagePath = ()) -> JsonValue:
    """A copy of `value` in which each string knows its path; keys belong to their container."""
    if isinstance(value, str):
        return Traced.whole(value, path)
    if isinstance(value, list):
        return [trace(part, (*path, index)) for index, part in enumerate(value)]
    if isinstance(value, dict):
        container = Leaf(path)
        return {
            Traced(key, (Run(len(key), container, STRUCTURE),)): trace(part, (*path, key))
            for key, part in value.items()
        }
    return value


def rekey(rebuilt: dict[str, JsonValue], original: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """`rebuilt`, whose keys (and so its punctuation) belong to the container that `original` was."""
    first = next(iter(original), "")
    if not isinstance(first, Traced):
        return rebuilt
    leaf = first.runs[0].leaf if first.runs else None
    return {Traced(key, (Run(len(key), leaf, STRUCTURE),)): part for key, part in rebuilt.items()}


def sole_path(text: str) -> MessagePath | None:
    """The path of the one leaf that all of `text` comes from."""
    runs = runs_of(text)
    leaf = runs[0].leaf if len(runs) == 1 else None
    return None if leaf is None else leaf.path
