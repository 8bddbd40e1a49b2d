"""`Plan`: options made concrete for one model shape and one sequence; every array's shape follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from serving.attention.baseline import shuffled
from serving.attention.capture import Floats, Integers
from serving.attention.options import CaptureOptions, RowMode, Statistic
from serving.attention.segments import Segments
from serving.errors import UsageError

TILE_FLOATS: Final = 1 << 19
"""Scores a tile holds at most (but never less than one row): 4 MiB, near what a core caches."""

Arrays: TypeAlias = dict[str, Floats]
"""Sums by the names of `array_shapes`."""


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

    @property
    def size(self) -> Size:
        """The numbers that memory depends on."""
        return Size(
            tokens=self.tokens,
            rows=len(self.row_starts),
            parts=len(self.segments.segments),
            orders=len(self.owners),
            layers=len(self.layers),
            heads=len(self.heads),
            kv_heads=len(self.kv_heads),
            head_dim=self.shape.head_dim,
        )

    @property
    def kv_heads(self) -> tuple[int, ...]:
        """Key heads that the captured heads read, ascending."""
        return tuple(dict.fromkeys(head // self.shape.group for head in self.heads))


@dataclass(frozen=True, slots=True)
class Size:
    """How large a capture is; `orders` counts the true order of the parts and the random ones."""

    tokens: int
    rows: int
    parts: int
    orders: int
    layers: int
    heads: int
    kv_heads: int
    """Key heads that the captured heads read."""
    head_dim: int


def bin_width(tokens: int, options: CaptureOptions) -> int:
    """Tokens in a bin of the finest map, which has at most twice `heatmap_bins`."""
    return -(-tokens // (2 * options.heatmap_bins))


def array_shapes(size: Size, options: CaptureOptions) -> Mapping[str, tuple[int, ...]]:
    """The shape of every array that a run accumulates, by its name."""
    each = (size.layers, size.heads)
    bins = -(-size.tokens // bin_width(size.tokens, options))
    shapes: dict[str, tuple[int, ...]] = {
        "mass": (*each, size.rows, size.parts),
        "sink": (*each, size.rows),
        "between": (size.layers, size.orders, size.heads, size.parts, size.parts),
    }
    for statistic, names in _ROW_ARRAYS.items():
        if statistic in options.statistics:
            shapes |= dict.fromkeys(names, (*each, size.rows))
    if Statistic.RECEIVED in options.statistics:
        shapes["received"] = (*each, size.tokens)
    if Statistic.HEATMAP in options.statistics:
        shapes["heatmap"] = (*each, bins, bins)
    if options.full_rows:
        shapes["full"] = (*each, len(options.full_rows), size.tokens)
    if options.keep_rows:
        shapes["queries"] = (*each, len(options.keep_rows), size.head_dim)
        shapes["keys"] = (size.layers, size.kv_heads, size.tokens, size.head_dim)
        shapes["scales"] = (size.layers,)
    return shapes


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
    _within(options.keep_rows, tokens, "keep_rows")
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
        bin_width=bin_width(tokens, options),
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
