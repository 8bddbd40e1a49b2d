"""Checks that cost no rendering: how many prefixes a static head can have, and which tools are look-alikes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import chain
from math import ceil
from types import MappingProxyType
from typing import Final, NamedTuple

from pydantic import JsonValue

from serving.assembler.items import ContextItem
from serving.assembler.kinds import KIND_RULES, Region
from serving.assembler.manifest import CacheKeys
from serving.assembler.messages import ToolSpec
from serving.assembler.record import Record

_BEFORE_THE_BOUNDARY = (Region.HEAD, Region.TOOLS, Region.EXAMPLES)


def cache_keys(items: Iterable[ContextItem]) -> CacheKeys:
    """Count yes/no conditions before the cache boundary, true now or not: N make 2^N prefixes."""
    names = {
        item.condition.name
        for item in items
        if item.condition is not None and KIND_RULES[item.kind].region in _BEFORE_THE_BOUNDARY
    }
    return CacheKeys(conditions=tuple(sorted(names)), distinct_prefixes=2 ** len(names))


class ToolPart(StrEnum):
    """What of a tool is compared."""

    NAME = "name"
    DESCRIPTION = "description"
    SCHEMA = "schema"


ALIKE: Final = MappingProxyType({ToolPart.NAME: 0.75, ToolPart.DESCRIPTION: 0.85, ToolPart.SCHEMA: 0.8})
"""From which similarity on a part of two tools is nearly the same; the descriptions of one product share many
words, so theirs is the highest."""


class SimilarTools(Record):
    """Two tools that a model can hardly tell apart: at least two of their three parts are nearly the same."""

    first: str
    second: str
    alike: tuple[ToolPart, ...]
    """The parts that reach `ALIKE`, in the order of `ToolPart`."""
    similarity: dict[ToolPart, float]
    """Of every part, 0 to 1, to two decimals."""


def similar_tools(tools: Sequence[ToolSpec]) -> tuple[SimilarTools, ...]:
    """Every pair of `tools` with two of three parts nearly the same, sorted by name, whatever their order.

    Similarity is Dice's coefficient, 2·shared / (size + size), over sets: letter triples of the name, words
    of the description, of which the first, mostly the verb, counts three times, and arguments of the schema
    with their types. It sees letters, not meaning: `fetch` and `get` are strangers. A missing description is
    like no other; two tools without arguments agree in them.

    Two parts of three cannot agree unless name or description does, and two sets that are alike share one of
    their rarest elements; only pairs that do are compared, so the work grows with the pairs worth naming.
    """
    known = sorted((_Features.of(tool) for tool in tools), key=lambda features: features.name)
    pairs = _sharing([features.letters for features in known], ALIKE[ToolPart.NAME]) | _sharing(
        [features.words for features in known], ALIKE[ToolPart.DESCRIPTION]
    )
    found = (_compared(known[first], known[second]) for first, second in sorted(pairs))
    return tuple(pair for pair in found if pair is not None)


class _Features(NamedTuple):
    name: str
    letters: frozenset[str]
    words: frozenset[str]
    arguments: frozenset[str]

    @classmethod
    def of(cls, tool: ToolSpec) -> _Features:
        spelled = f"^{''.join(filter(str.isalnum, tool.name)).casefold()}$"
        words = "".join(c if c.isalnum() else " " for c in tool.description.casefold()).split()
        return cls(
            tool.name,
            frozenset(spelled[index : index + 3] for index in range(len(spelled) - 2)),
            frozenset([*words, *(f"{copy} {word}" for word in words[:1] for copy in (1, 2))]),
            frozenset(_arguments(tool.parameters)),
        )


def _compared(first: _Features, second: _Features) -> SimilarTools | None:
    similarity = {
        ToolPart.NAME: _dice(first.letters, second.letters),
        ToolPart.DESCRIPTION: _dice(first.words, second.words),
        ToolPart.SCHEMA: _dice(first.arguments, second.arguments)
        if first.arguments | second.arguments
        else 1.0,
    }
    alike = tuple(part for part, value in similarity.items() if value >= ALIKE[part])
    if len(alike) < 2:
        return None
    rounded = {part: round(value, 2) for part, value in similarity.items()}
    return SimilarTools(first=first.name, second=second.name, alike=alike, similarity=rounded)


def _dice(first: frozenset[str], second: frozenset[str]) -> float:
    total = len(first) + len(second)
    return 2 * len(first & second) / total if total else 0.0


def _sharing(sets: Sequence[frozenset[str]], threshold: float) -> set[tuple[int, int]]:
    """Index pairs that can reach `threshold`: those that share one of the rarest elements of each.

    With |B| ≥ t·|A| / (2 − t) for any B alike to A, at least that many elements are shared; so of A's elements
    in any one order, the first |A| − that + 1 hold a shared one (prefix filter of set-similarity joins).
    """
    frequency = Counter(chain.from_iterable(sets))
    holders: dict[str, list[int]] = defaultdict(list)
    pairs: set[tuple[int, int]] = set()
    for index, elements in enumerate(sets):
        shared = ceil(threshold * len(elements) / (2 - threshold) - 1e-9)
        rarest = sorted(elements, key=lambda element: (frequency[element], element))
        for element in rarest[: len(elements) - shared + 1]:
            pairs.update((other, index) for other in holders[element])
            holders[element].append(index)
    return pairs


def _arguments(schema: dict[str, JsonValue]) -> Iterable[str]:
    """`path:type` of every argument at every depth, and `path!` of the required ones."""
    waiting: list[tuple[str, dict[str, JsonValue]]] = [("", schema)]
    while waiting:
        path, here = waiting.pop()
        required = here.get("required")
        yield from (f"{path}.{name}!" for name in (required if isinstance(required, list) else ()))
        properties = here.get("properties")
        for name, below in (properties if isinstance(properties, dict) else {}).items():
            if isinstance(below, dict):
                yield f"{path}.{name}:{below.get('type')}"
                waiting.append((f"{path}.{name}", below))
        items = here.get("items")
        if isinstance(items, dict):
            yield f"{path}[]:{items.get('type')}"
            waiting.append((f"{path}[]", items))
