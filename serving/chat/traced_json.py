"""`json.dumps` over strings that know their origin."""

from __future__ import annotations

import json
import json.encoder
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from serving.chat.traced import STRUCTURE, Leaf, Run, Traced, concat, cut, leaves_in, runs_of


def to_json(
    value: object,
    *,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """`json.dumps` with origins: quotes, keys and punctuation belong to the enclosing container.

    Raises: TypeError, as `json.dumps` does, for a value that JSON cannot hold.
    """
    if not leaves_in(value):
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )
    item, key = separators or ((", ", ": ") if indent is None else (",", ": "))
    step = " " * indent if isinstance(indent, int) else indent
    return concat(_Encoder(ensure_ascii, step, item, key, sort_keys).chunks(value, None, 0))


@dataclass(frozen=True, slots=True)
class _Encoder:
    ensure_ascii: bool
    step: str | None
    item_separator: str
    key_separator: str
    sort_keys: bool

    def chunks(self, value: object, owner: Leaf | None, depth: int) -> Iterator[str]:
        if isinstance(value, str):
            yield self._string(value, owner)
        elif isinstance(value, dict):
            first = next(iter(value), None)
            own = runs_of(first)[0].leaf if isinstance(first, Traced) and first else owner
            pairs = sorted(value.items()) if self.sort_keys else value.items()
            entries = (
                (self._key(key, own), _owned(self.key_separator, own), *self.chunks(part, own, depth + 1))
                for key, part in pairs
            )
            yield from self._container("{}", entries, own, depth)
        elif isinstance(value, list | tuple):
            elements = (tuple(self.chunks(part, owner, depth + 1)) for part in value)
            yield from self._container("[]", elements, owner, depth)
        else:
            yield _owned(json.dumps(value), owner)

    def _container(
        self, brackets: str, entries: Iterable[tuple[str, ...]], owner: Leaf | None, depth: int
    ) -> Iterator[str]:
        empty = True
        yield _owned(brackets[0], owner)
        for entry in entries:
            lead = "" if empty else self.item_separator
            if self.step is not None:
                lead += "\n" + self.step * (depth + 1)
            yield _owned(lead, owner)
            yield from entry
            empty = False
        if self.step is not None and not empty:
            yield _owned("\n" + self.step * depth, owner)
        yield _owned(brackets[1], owner)

    def _key(self, key: object, owner: Leaf | None) -> str:
        if isinstance(key, str):
            return self._string(key, owner)
        # json.dumps turns the other allowed keys (numbers, booleans, null) into strings of their JSON.
        return _owned(json.dumps({key: 0})[1:-4], owner)

    def _string(self, text: str, owner: Leaf | None) -> str:
        encode = json.encoder.encode_basestring_ascii if self.ensure_ascii else json.encoder.encode_basestring
        encoded = encode(str.__str__(text))
        runs = [Run(1, owner, STRUCTURE), *self._escaped(text, len(encoded) - 2), Run(1, owner, STRUCTURE)]
        return Traced(encoded, runs)

    def _escaped(self, text: str, encoded_length: int) -> list[Run]:
        origins = runs_of(text)
        if encoded_length == len(text):
            return list(origins)
        runs: list[Run] = []
        position = 0
        for match in _ESCAPED_ASCII.finditer(text) if self.ensure_ascii else _ESCAPED.finditer(text):
            runs.extend(cut(origins, position, match.start()))
            encode = json.encoder.encode_basestring_ascii
            width = len(encode(match.group())) - 2
            runs.extend(cut(origins, match.start(), match.end()) * width)
            position = match.end()
        return runs + cut(origins, position, len(text))


_ESCAPED = re.compile(r'[\x00-\x1f\\"]')
_ESCAPED_ASCII = re.compile(r"[^ !#-\[\]-~]")


def _owned(text: str, owner: Leaf | None) -> str:
    return text if owner is None else Traced(text, (Run(len(text), owner, STRUCTURE),))
