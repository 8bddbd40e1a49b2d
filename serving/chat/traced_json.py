"""`json.dumps` over strings that know their origin."""

from __future__ import annotations

import json
import json.encoder
import re
from collections.abc import Sequence

from serving.chat.traced import STRUCTURE, Leaf, Run, Traced, cut, leaves_in, runs_of


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
    writer = _Writer(ensure_ascii, step, item, key, sort_keys)
    writer.value(value, None, 0)
    return Traced("".join(writer.texts), writer.runs)


class _Writer:
    """Writes values one after the other: their text, and the origin of its characters."""

    def __init__(
        self, ensure_ascii: bool, step: str | None, item_separator: str, key_separator: str, sort_keys: bool
    ) -> None:
        self.texts: list[str] = []
        self.runs: list[Run] = []
        self._ensure_ascii = ensure_ascii
        self._encode = (
            json.encoder.encode_basestring_ascii if ensure_ascii else json.encoder.encode_basestring
        )
        self._step = step
        self._item_separator = item_separator
        self._key_separator = key_separator
        self._sort_keys = sort_keys

    def value(self, value: object, owner: Leaf | None, depth: int) -> None:
        if isinstance(value, str):
            self._string(value, owner)
        elif isinstance(value, dict):
            self._object(value, owner, depth)
        elif isinstance(value, list | tuple):
            self._add("[", owner)
            for number, part in enumerate(value):
                self._lead(number, owner, depth)
                self.value(part, owner, depth + 1)
            self._close("]", owner, depth, empty=not value)
        else:
            self._add(json.dumps(value), owner)

    def _object(self, value: dict[object, object], owner: Leaf | None, depth: int) -> None:
        first = next(iter(value), None)
        own = first.runs[0].leaf if isinstance(first, Traced) and first else owner
        self._add("{", own)
        pairs = sorted(value.items()) if self._sort_keys else value.items()
        for number, (key, part) in enumerate(pairs):
            self._lead(number, own, depth)
            if isinstance(key, str):
                self._string(key, own)
            else:
                # json.dumps turns the other allowed keys (numbers, booleans, null) into strings of their JSON.
                self._add(json.dumps({key: 0})[1:-4], own)
            self._add(self._key_separator, own)
            self.value(part, own, depth + 1)
        self._close("}", own, depth, empty=not value)

    def _lead(self, number: int, owner: Leaf | None, depth: int) -> None:
        lead = self._item_separator if number else ""
        if self._step is not None:
            lead += "\n" + self._step * (depth + 1)
        if lead:
            self._add(lead, owner)

    def _close(self, bracket: str, owner: Leaf | None, depth: int, *, empty: bool) -> None:
        if self._step is not None and not empty:
            bracket = "\n" + self._step * depth + bracket
        self._add(bracket, owner)

    def _add(self, text: str, owner: Leaf | None) -> None:
        self.texts.append(text)
        self.runs.append(Run(len(text), owner, STRUCTURE))

    def _string(self, text: str, owner: Leaf | None) -> None:
        encoded = self._encode(str.__str__(text))
        quote = Run(1, owner, STRUCTURE)
        self.texts.append(encoded)
        self.runs += (quote, *self._escaped(text, len(encoded) - 2), quote)

    def _escaped(self, text: str, encoded_length: int) -> Sequence[Run]:
        origins = runs_of(text)
        if encoded_length == len(text):
            return origins
        runs: list[Run] = []
        position = 0
        for match in _ESCAPED_ASCII.finditer(text) if self._ensure_ascii else _ESCAPED.finditer(text):
            runs.extend(cut(origins, position, match.start()))
            encode = json.encoder.encode_basestring_ascii
            width = len(encode(match.group())) - 2
            runs.extend(cut(origins, match.start(), match.end()) * width)
            position = match.end()
        return runs + cut(origins, position, len(text))


_ESCAPED = re.compile(r'[\x00-\x1f\\"]')
_ESCAPED_ASCII = re.compile(r"[^ !#-\[\]-~]")
