"""Checks that cost no rendering: how many prefixes a deployment's static head can have."""

from __future__ import annotations

from collections.abc import Iterable

from serving.assembler.items import ContextItem
from serving.assembler.kinds import KIND_RULES, Region
from serving.assembler.manifest import CacheKeys

_BEFORE_THE_BOUNDARY = (Region.HEAD, Region.TOOLS, Region.EXAMPLES)


def cache_keys(items: Iterable[ContextItem]) -> CacheKeys:
    """Count yes/no conditions before the cache boundary, true now or not: N make 2^N prefixes."""
    names = {
        item.condition.name
        for item in items
        if item.condition is not None and KIND_RULES[item.kind].region in _BEFORE_THE_BOUNDARY
    }
    return CacheKeys(conditions=tuple(sorted(names)), distinct_prefixes=2 ** len(names))
