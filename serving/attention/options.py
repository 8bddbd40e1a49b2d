"""What to capture: which layers, heads and rows, and which statistics of them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import Field

from serving.assembler.record import Record

MAX_HEATMAP_BINS: Final = 256


class Statistic(StrEnum):
    """What is computed beside the mass per segment, which always is."""

    ENTROPY = "entropy"
    """−Σ p log p of a row, in nats."""
    PEAK = "peak"
    """The largest single probability of a row."""
    DISTANCE = "distance"
    """Mean and standard deviation of how far back a row looks, in tokens."""
    RECEIVED = "received"
    """What every key gets from all captured rows: the source of sinks beyond token 0."""
    HEATMAP = "heatmap"
    """A pooled map per head that keeps mass, and its mean and maximum over the heads of a layer."""


class RowMode(StrEnum):
    """Which rows (positions that look) are computed, and how they are kept."""

    EVERY = "every"
    """Every position, one stored row each: T rows a head."""
    POOLED = "pooled"
    """Every position is computed; what is stored is the mean of each of `row_bins` stretches."""
    CHOSEN = "chosen"
    """Only `chosen` positions are computed, at O(chosen × T), one stored row each."""


class CaptureOptions(Record):
    """What one capture computes and keeps; the estimate before a run follows from it."""

    layers: tuple[int, ...] | None = None
    """None: all. Indices from 0, in the order of the results."""
    heads: tuple[int, ...] | None = None
    """Query heads, the same in every layer; None: all."""
    rows: RowMode = RowMode.POOLED
    chosen: tuple[int, ...] = ()
    """Positions for `RowMode.CHOSEN`, ascending."""
    row_bins: int = Field(default=256, ge=1)
    """Stored rows for `RowMode.POOLED`, at most: neighbouring positions are averaged."""
    statistics: frozenset[Statistic] = frozenset(Statistic)
    heatmap_bins: int = Field(default=64, ge=1, le=MAX_HEATMAP_BINS // 2)
    """Bins on each side of a head's map; mean and maximum over heads have twice as many."""
    full_rows: tuple[int, ...] = ()
    """Positions whose exact rows over all keys are kept: layers × heads × rows × T floats."""
    keep_rows: tuple[int, ...] = ()
    """Positions whose queries are kept beside all keys: `redraw` gives their exact rows, of any captured head,
    at about layers × key heads × T × head size floats whatever the number of rows."""
    shuffles: int = Field(default=0, ge=0, le=64)
    """Random orders of the context's parts that the baseline of segment × segment mass averages over."""
    shuffle_seed: int = 0
    chunk: int | None = Field(default=None, ge=1)
    """Prefill in chunks of so many tokens, with a KV cache; None: in one pass, without one."""

    def _problem(self) -> str | None:
        for name in ("layers", "heads", "chosen", "full_rows", "keep_rows"):
            values = getattr(self, name)
            if values is not None and (list(values) != sorted(set(values)) or any(v < 0 for v in values)):
                return f"{name} are ascending, distinct and not negative, got {values!r}"
        if self.layers == () or self.heads == ():
            return "layers and heads name at least one, or are None for all"
        if (self.rows is RowMode.CHOSEN) != bool(self.chosen):
            return "chosen positions come with rows='chosen', and only with it"
        return None
