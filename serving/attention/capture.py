"""`Capture`: the attention statistics of one token sequence, as plain arrays with a meaning on every axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from serving.assembler.record import Record
from serving.attention.options import CaptureOptions
from serving.attention.segments import Segments
from serving.errors import UsageError

Floats: TypeAlias = NDArray[np.float32]
Integers: TypeAlias = NDArray[np.int64]


class ModelIdentity(Record):
    """Which model looked: enough to know whether two captures can be compared."""

    name: str
    architecture: str
    weights_sha256: str | None
    """None: random weights."""
    random_seed: int | None = None
    """Of the random weights; None: the weights are real."""
    num_layers: int = Field(ge=1)
    num_heads: int = Field(ge=1)
    num_kv_heads: int = Field(ge=1)
    head_dim: int = Field(ge=1)
    dtype: str
    """Of the model's arithmetic; the statistics are always float32."""


@dataclass(frozen=True, slots=True, eq=False)
class Capture:
    """Exact attention statistics of every captured layer, head and row.

    Axes: L captured layers (`layers`), H captured query heads (`heads`), R stored rows, S segments
    (`segments.segments`), T tokens, B heatmap bins. A row is a position that looks: row i is what token i
    attends to while the model decides token i + 1. All masses are shares of one row's attention, so the parts
    of a row sum to 1. They say where a head looked, not what mattered.
    """

    model: ModelIdentity
    options: CaptureOptions
    segments: Segments
    token_ids: tuple[int, ...]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    row_starts: Integers
    """[R]: the first position of every stored row."""
    row_ends: Integers
    """[R]: one past its last; stored values are means over these positions."""
    mass: Floats
    """[L, H, R, S]: mass per segment; sums to 1 over S."""
    sink: Floats
    """[L, H, R]: mass on token 0."""
    between: Floats
    """[L, H, S, S]: mean mass from the captured rows of a segment (first axis) on a segment (second); a
    segment without captured rows has zeros."""
    rows_in: Integers
    """[S]: captured rows in every segment."""
    entropy: Floats | None = None
    """[L, H, R], nats."""
    peak: Floats | None = None
    """[L, H, R]."""
    distance: Floats | None = None
    """[L, H, R]: mean tokens back."""
    distance_sd: Floats | None = None
    """[L, H, R]: the standard deviation inside one row (averaged over a stored row's positions)."""
    received: Floats | None = None
    """[L, H, T]: sum over the captured rows of what each key gets."""
    heatmap: Floats | None = None
    """[L, H, B, B]: row bin × key bin; a captured row bin sums to 1, one without captured rows is zero."""
    heatmap_mean: Floats | None = None
    """[L, 2B, 2B]: mean over heads, twice as fine."""
    heatmap_max: Floats | None = None
    """[L, 2B, 2B]: maximum over heads of the pooled maps."""
    full: Floats | None = None
    """[L, H, F, T]: exact rows of `options.full_rows`; zero beyond the row's own position."""
    queries: Floats | None = None
    """[L, H, K, D]: queries of `options.keep_rows`, after norms and rotation."""
    keys: Floats | None = None
    """[L, key heads read by the captured heads, T, D]."""
    scales: Floats | None = None
    """[L]: what a product of query and key is multiplied by."""
    pieces: tuple[str, ...] | None = None
    """[T]: the text of every token, for display; None where the folder has no tokenizer."""
    baseline: Floats | None = None
    """[L, H, S, S]: `between` as it would be if the parts stood in random order (see `baseline.py`)."""

    @property
    def tokens(self) -> int:
        """T."""
        return self.segments.tokens

    @property
    def row_counts(self) -> Integers:
        """[R]: positions behind every stored row."""
        return self.row_ends - self.row_starts

    def layer(self, layer: int) -> int:
        """Where the model's layer `layer` stands on the first axis; raises `UsageError` if not captured."""
        return _place(self.layers, layer, "layer")

    def head(self, head: int) -> int:
        """Where the model's head `head` stands on the second axis; raises `UsageError` if not captured."""
        return _place(self.heads, head, "head")

    def redraw(self, layer: int, head: int) -> Floats:
        """[K, T]: the exact rows of `options.keep_rows` for one of the model's heads, without the model.

        Raises: UsageError where no queries were kept, or the head was not captured.
        """
        if self.queries is None or self.keys is None or self.scales is None:
            raise UsageError("Expected a capture with kept queries, got one without; capture with keep_rows.")
        at, place = self.layer(layer), self.head(head)
        group = self.model.num_heads // self.model.num_kv_heads
        read = list(dict.fromkeys(captured // group for captured in self.heads))
        keys = self.keys[at, read.index(head // group)]
        scores = self.queries[at, place] @ keys.T * self.scales[at]
        rows = np.array(self.options.keep_rows)[:, None]
        scores[np.arange(self.tokens) > rows] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        shares: Floats = weights / weights.sum(-1, keepdims=True)
        return shares


def _place(captured: tuple[int, ...], wanted: int, what: str) -> int:
    if wanted not in captured:
        listed = ", ".join(map(str, captured))
        raise UsageError(f"Expected a captured {what}, got {wanted}; this capture holds {listed}.")
    return captured.index(wanted)
