"""Choose optional items so that the *rendered* packet fits: pack by estimate, render, learn, repack.

Counts do not add up over items (tokens merge across boundaries, templates add framing), so no estimate
decides anything in the end: a selection is accepted only when its rendering fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from serving.assembler.items import ContextItem
from serving.assembler.messages import FRAMING
from serving.assembler.packers import Packer, Sized
from serving.assembler.renderer import Rendered
from serving.assembler.utility import UTILITY_DECIMALS

FIRST_BYTES_PER_TOKEN: Final = 4.0
"""Of the first estimate only; the first rendering replaces it by what this model's tokenizer really does."""

MOST_REPACKS: Final = 8
"""Renderings spent on a better selection; after these, items are only taken away, so the search ends."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """The selection found. `overflow` is positive only when the required items alone do not fit."""

    chosen: frozenset[str]
    rendered: Rendered
    overflow: int
    renders: int
    expected: Mapping[str, int]
    """Tokens of every item, as far as known: rendered, else given, else estimated."""


def fit(
    required: Sequence[ContextItem],
    optional: Sequence[ContextItem],
    worth: Mapping[str, float],
    budget: int,
    packer: Packer,
    render: Callable[[frozenset[str]], Rendered],
) -> Fitted:
    """The best selection seen whose rendering has at most `budget` tokens.

    `render` renders the required items and the given optional ones. Best is the highest summed utility,
    then the fewest tokens. At most `MOST_REPACKS` renderings, then one for every item that has to go.
    """
    sizes = _Sizes([*required, *optional])
    best: tuple[tuple[int, int], frozenset[str], Rendered] | None = None
    tried: dict[frozenset[str], Rendered] = {}
    chosen: frozenset[str] = frozenset()

    def rendered_once(selection: frozenset[str]) -> Rendered:
        if selection not in tried:
            tried[selection] = render(selection)
            sizes.learn(tried[selection])
        return tried[selection]

    while len(tried) < MOST_REPACKS:
        room = budget - sizes.framing - sum(sizes.of(item) for item in required)
        chosen = packer.pack([Sized(item.id, sizes.of(item), worth[item.id]) for item in optional], room)
        if chosen in tried:
            break
        rendered = rendered_once(chosen)
        count = len(rendered.token_ids)
        if count <= budget:
            score = (sum(round(worth[item_id] * 10**UTILITY_DECIMALS) for item_id in chosen), -count)
            if best is None or score > best[0]:
                best = (score, chosen, rendered)
            if len(chosen) == len(optional):
                break
    if best is not None:
        return Fitted(best[1], best[2], 0, len(tried), sizes.all())
    # Nothing fitted, so the estimates mislead this packer: take the least useful away until it does.
    by_worth = sorted(
        (item for item in optional if item.id in chosen), key=lambda item: (worth[item.id], item.id)
    )
    while True:
        rendered = rendered_once(chosen)
        excess = len(rendered.token_ids) - budget
        if excess <= 0 or not by_worth:
            return Fitted(chosen, rendered, max(0, excess), len(tried), sizes.all())
        while by_worth and excess > 0:
            gone = by_worth.pop(0)
            excess -= sizes.of(gone)
            chosen -= {gone.id}


class _Sizes:
    """What every item is expected to cost: as rendered, else as given or estimated and corrected."""

    def __init__(self, items: Sequence[ContextItem]) -> None:
        self.framing = 0
        self._items = {item.id: item for item in items}
        # A given size makes the estimate by length needless, and with it a serialisation of the item.
        self._bytes = {item.id: item.content_size for item in items if item.tokens is None}
        self._counted: dict[str, int] = {}
        self._given_scale = 1.0
        self._bytes_per_token = FIRST_BYTES_PER_TOKEN

    def of(self, item: ContextItem) -> int:
        if (counted := self._counted.get(item.id)) is not None:
            return counted
        if item.tokens is not None:
            return round(item.tokens * self._given_scale)
        return max(1, round(self._bytes[item.id] / self._bytes_per_token))

    def learn(self, rendered: Rendered) -> None:
        tokens = rendered.tokens_by_item()
        self.framing = tokens.pop(FRAMING)
        self._counted.update(tokens)
        known = [
            (self._items[item_id], count)
            for item_id, count in self._counted.items()
            if item_id in self._items
        ]
        given = [(item.tokens, count) for item, count in known if item.tokens is not None]
        if promised := sum(tokens for tokens, _ in given):
            self._given_scale = sum(count for _, count in given) / promised
        unsized = [(item, count) for item, count in known if item.tokens is None]
        if measured := sum(count for _, count in unsized):
            self._bytes_per_token = sum(self._bytes[item.id] for item, _ in unsized) / measured

    def all(self) -> dict[str, int]:
        return {item_id: self.of(item) for item_id, item in self._items.items()}
