"""The kernel: attention probabilities of one layer, tile by tile, in buffers that never grow.

A tile holds some rows of the query heads that share one key head, over all keys up to its last row; every
statistic of these rows is taken from it before the next tile overwrites it. Memory is O(T), and one pass over
the scores serves all statistics: on a processor that costs about as much as the model's own fused attention,
while the way by fused calls (the same call again, with another V for every statistic) costs one such pass a
statistic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from serving.attention.plan import TILE_FLOATS

_HIDDEN: Final = -1e30
"""The score of a key that a row must not see: exp gives 0, and 0 times it is no NaN as with −inf."""

_MOST_ROWS: Final = 128
"""Rows a tile has at most: the half of its diagonal block that nobody sees is computed in vain."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows of one group of heads: G query heads, N rows, W keys (a multiple of the bin width).

    `weights` / `total` are the probabilities; both tensors are only valid until the next tile.
    """

    heads: slice
    """Places on the captured head axis."""
    rows: slice
    """Places in the `positions` that were asked for."""
    weights: torch.Tensor
    """[G, N, W]: exp(score − largest score); 0 for keys after the row."""
    shifted: torch.Tensor
    """[G, N, W]: score − largest score."""
    total: torch.Tensor
    """[G, N]: sum of `weights`."""


class Buffers:
    """Two flat buffers for one tile at a time; they grow to the largest tile and stay."""

    def __init__(self) -> None:
        self._kept: tuple[torch.Tensor, torch.Tensor] | None = None

    def take(self, size: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Two tensors of `size` floats; what was taken before is overwritten."""
        kept = self._kept
        if kept is None or len(kept[0]) < size or kept[0].device != device:
            room = max(size, TILE_FLOATS)
            kept = self._kept = (torch.empty(room, device=device), torch.empty(room, device=device))
        return kept[0][:size], kept[1][:size]


@dataclass(frozen=True, slots=True)
class Heads:
    """Query heads that share a key head and are taken together."""

    kv_head: int
    heads: tuple[int, ...]
    places: slice
    """On the captured head axis."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one layer and call: query [Hq, Tq, D] from position `first` on, key [Hkv, Tk, D] from 0 on.

    `positions` [N] are the rows wanted, ascending, all of them among those of `query`.
    """

    query: torch.Tensor
    key: torch.Tensor
    positions: torch.Tensor
    first: int
    scale: float


def divide(heads: Sequence[int], group: int, rows: int) -> list[Heads]:
    """The captured heads in tasks: single heads, or for few rows all heads of a key head at once."""
    found: dict[int, list[int]] = {}
    for place, head in enumerate(heads):
        found.setdefault(head // group, []).append(place)
    together = group if rows < _MOST_ROWS else 1
    return [
        Heads(kv_head, tuple(heads[place] for place in taken), slice(taken[0], taken[-1] + 1))
        for kv_head, places in found.items()
        for taken in (places[start : start + together] for start in range(0, len(places), together))
    ]


def tiles(rows: Rows, heads: Heads, bin_width: int, buffers: Buffers) -> Iterator[Tile]:
    """Every tile of these heads, in row order."""
    most = int(rows.positions[-1]) + 1
    padded = _padded(most, bin_width)
    # Zero keys fill the last bin; they lie behind every row, so the mask hides them.
    keys = torch.zeros(padded, rows.key.shape[-1], device=rows.key.device)
    keys[:most] = rows.key[heads.kv_head, :most]
    query = rows.query[list(heads.heads)]
    count = max(1, min(_MOST_ROWS, TILE_FLOATS // (len(heads.heads) * padded)))
    for start in range(0, len(rows.positions), count):
        end = min(start + count, len(rows.positions))
        at = rows.positions[start:end]
        low, high = int(at[0]) - rows.first, int(at[-1]) + 1 - rows.first
        dense = high - low == len(at)
        asked = (query[:, low:high] if dense else query[:, at - rows.first]).to(torch.float32) * rows.scale
        yield _tile(asked, keys[: _padded(int(at[-1]) + 1, bin_width)], at, heads.places, start, buffers)


def _tile(
    query: torch.Tensor, keys: torch.Tensor, at: torch.Tensor, places: slice, start: int, buffers: Buffers
) -> Tile:
    group, count, width = *query.shape[:2], len(keys)
    scores, weights = (
        buffer.view(group, count, width) for buffer in buffers.take(group * count * width, keys.device)
    )
    torch.mm(query.view(group * count, -1), keys.T, out=scores.view(group * count, width))
    later = int(at[0]) + 1
    behind = torch.arange(later, width, device=at.device) > at[:, None]
    scores[:, :, later:].masked_fill_(behind, _HIDDEN)
    scores.sub_(scores.amax(-1, keepdim=True))
    torch.exp(scores, out=weights)
    return Tile(places, slice(start, start + count), weights, scores, weights.sum(-1))


def _padded(keys: int, bin_width: int) -> int:
    return -(-keys // bin_width) * bin_width
