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

_HIDDEN: Final = -1e30
"""The score of a key that a row must not see: exp gives 0, and 0 times it is no NaN as with −inf."""

TILE_FLOATS: Final = 1 << 20
"""Scores a tile holds at most (but never less than one row of one group): 4 MiB, near what a core caches."""

_MOST_ROWS: Final = 64
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


class Tiler:
    """Walks the rows of a layer; keeps its two buffers from layer to layer."""

    def __init__(self, heads: Sequence[int], group: int, bin_width: int) -> None:
        """Args: `heads` are the query heads wanted, ascending; `group` query heads share a key head."""
        self._groups = _groups(heads, group)
        self._width = bin_width
        self._buffers: tuple[torch.Tensor, torch.Tensor] | None = None

    def tiles(
        self, query: torch.Tensor, key: torch.Tensor, positions: torch.Tensor, first: int, scale: float
    ) -> Iterator[Tile]:
        """Every tile of one layer and call.

        Args: query [Hq, Tq, D] of the positions from `first` on, key [Hkv, Tk, D] from position 0 on,
        `positions` [N] the rows wanted, ascending, all among those of `query`.
        """
        if not len(positions):
            return
        most = int(positions[-1]) + 1
        padded = -(-most // self._width) * self._width
        for kv_head, (heads, place) in self._groups.items():
            # Zero keys fill the last bin; they lie behind every row, so the mask hides them.
            keys = torch.zeros(padded, key.shape[-1], device=key.device)
            keys[:most] = key[kv_head, :most]
            wanted = query[list(heads)]
            count = max(1, min(_MOST_ROWS, TILE_FLOATS // (len(heads) * padded)))
            for start in range(0, len(positions), count):
                rows = slice(start, min(start + count, len(positions)))
                yield self._tile(wanted, keys, positions[rows], first, scale, place, rows)

    def _tile(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        at: torch.Tensor,
        first: int,
        scale: float,
        heads: slice,
        rows: slice,
    ) -> Tile:
        lowest, width = int(at[0]), -(-(int(at[-1]) + 1) // self._width) * self._width
        group, count = query.shape[0], len(at)
        scores, weights = self._tile_buffers(group * count * width, keys.device)
        asked = query[:, at - first].to(torch.float32).mul_(scale)
        torch.mm(asked.reshape(group * count, -1), keys[:width].T, out=scores.view(group * count, width))
        scores = scores.view(group, count, width)
        behind = torch.arange(lowest + 1, width, device=at.device)
        scores[:, :, lowest + 1 :].masked_fill_(behind > at[:, None], _HIDDEN)
        scores.sub_(scores.amax(-1, keepdim=True))
        torch.exp(scores, out=weights.view(group, count, width))
        weights = weights.view(group, count, width)
        return Tile(heads, rows, weights, scores, weights.sum(-1))

    def _tile_buffers(self, size: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        kept = self._buffers
        if kept is None or len(kept[0]) < size or kept[0].device != device:
            room = max(size, TILE_FLOATS)
            kept = (torch.empty(room, device=device), torch.empty(room, device=device))
            self._buffers = kept
        return kept[0][:size], kept[1][:size]


def _groups(heads: Sequence[int], group: int) -> dict[int, tuple[tuple[int, ...], slice]]:
    """Key head → its wanted query heads and their places among all wanted ones."""
    found: dict[int, list[int]] = {}
    for head in heads:
        found.setdefault(head // group, []).append(head)
    out, place = {}, 0
    for kv_head, members in found.items():
        out[kv_head] = (tuple(members), slice(place, place + len(members)))
        place += len(members)
    return out
