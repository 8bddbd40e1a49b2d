"""`Plan`: options made concrete for one model shape and one sequence; every array's shape follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np

from serving.attention.baseline import shuffled
from serving.attention.capture import Floats, Integers
from serving.attention.options import CaptureOptions, RowMode, Statistic
from serving.attention.segments import Segments
from serving.errors import UsageError

Arrays: TypeAlias = dict[str, Floats]
"""Sums by the names of `Plan.array_shapes`."""


@dataclass(frozen=True, slots=True)
class HeadShape:
    """The sizes of a decoder's attention: `num_heads` queries share `num_kv_heads` keys in equal groups."""

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int

    @property
    def group(self) -> int:
        """Query heads per key head."""
        return self.num_heads // self.num_kv_heads


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What a recorder fills: the captured places, the stored row of every position, the key partitions."""

    shape: HeadShape
    options: CaptureOptions
    segments: Segments
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    row_starts: Integers
    row_ends: Integers
    row_of: Integers
    """[T]: the stored row that a position goes into; −1: not captured."""
    owners: Integers
    """[1 + shuffles, T]: the segment of every token, in truth and in every random order."""
    bin_width: int
    """Tokens in a bin of the finest map."""

    @property
    def tokens(self) -> int:
        """T."""
        return self.segments.tokens

    @property
    def bins(self) -> int:
        """Bins of the finest map, at most twice `heatmap_bins`."""
        return -(-self.tokens // self.bin_width)

    @property
    def captured(self) -> Integers:
        """The captured positions, ascending."""
        return np.flatnonzero(self.row_of >= 0)

    def wants(self, statistic: Statistic) -> bool:
        """Whether `statistic` was asked for."""
        return statistic in self.options.statistics

    def array_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every array that the run accumulates, by its name."""
        layers, heads, tokens = len(self.layers), len(self.heads), self.tokens
        rows, parts = len(self.row_starts), len(self.segments.segments)
        shapes: dict[str, tuple[int, ...]] = {
            "mass": (layers, heads, rows, parts),
            "sink": (layers, heads, rows),
            "between": (layers, len(self.owners), heads, parts, parts),
        }
        for statistic, names in _ROW_ARRAYS.items():
            if self.wants(statistic):
                shapes |= dict.fromkeys(names, (layers, heads, rows))
        if self.wants(Statistic.RECEIVED):
            shapes["received"] = (layers, heads, tokens)
        if self.wants(Statistic.HEATMAP):
            shapes["heatmap"] = (layers, heads, self.bins, self.bins)
        if self.options.full_rows:
            shapes["full"] = (layers, heads, len(self.options.full_rows), tokens)
        return shapes

    @property
    def array_bytes(self) -> int:
        """Bytes of all these arrays."""
        return sum(4 * prod(shape) for shape in self.array_shapes().values())


_ROW_ARRAYS = {
    Statistic.ENTROPY: ("entropy",),
    Statistic.PEAK: ("peak",),
    Statistic.DISTANCE: ("distance", "distance_sd"),
}


def make_plan(shape: HeadShape, segments: Segments, options: CaptureOptions) -> Plan:
    """Check the options against the model and the sequence.

    Raises: UsageError for a layer, head or position that does not exist, or a full row outside `chosen`.
    """
    tokens = segments.tokens
    layers = _within(options.layers, shape.num_layers, "layers")
    heads = _within(options.heads, shape.num_heads, "heads")
    _within(options.chosen, tokens, "chosen")
    _within(options.full_rows, tokens, "full_rows")
    if options.rows is RowMode.CHOSEN and (missing := sorted(set(options.full_rows) - set(options.chosen))):
        raise UsageError(
            f"Expected full_rows among the chosen rows, but {missing[0]} is not; add it to chosen."
        )
    starts, ends = _stored_rows(options, tokens)
    row_of = np.full(tokens, -1, dtype=np.int64)
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        row_of[start:end] = row
    orders = shuffled(segments, options.shuffles, options.shuffle_seed)
    return Plan(
        shape=shape,
        options=options,
        segments=segments,
        layers=layers,
        heads=heads,
        row_starts=starts,
        row_ends=ends,
        row_of=row_of,
        owners=np.stack([segments.by_token, *orders]),
        bin_width=-(-tokens // (2 * options.heatmap_bins)),
    )


def _within(wanted: Sequence[int] | None, count: int, what: str) -> tuple[int, ...]:
    if wanted is None:
        return tuple(range(count))
    if wanted and wanted[-1] >= count:
        raise UsageError(f"Expected {what} below {count}, got {wanted[-1]}; they count from 0.")
    return tuple(wanted)


def _stored_rows(options: CaptureOptions, tokens: int) -> tuple[Integers, Integers]:
    if options.rows is RowMode.CHOSEN:
        starts = np.array(options.chosen, dtype=np.int64)
        return starts, starts + 1
    width = 1 if options.rows is RowMode.EVERY else -(-tokens // options.row_bins)
    starts = np.arange(0, tokens, width, dtype=np.int64)
    return starts, np.minimum(starts + width, tokens)
