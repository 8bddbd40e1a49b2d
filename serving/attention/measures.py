"""Numbers that a capture gives about segments: shares, triangles against their baseline, heads, sinks.

All are attention mass: where heads looked. Whether that mattered to the answer is another question.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from serving.attention.capture import Capture, Floats
from serving.attention.options import RowMode
from serving.errors import UsageError

SINK_THRESHOLD: Final = 0.3
"""Gu et al., "When Attention Sink Emerges in Language Models" (2410.10781): a key is a sink of a head when the
rows that can see it give it more than ε = 0.3 on average; they measured over T = 64 tokens."""

SINK_TOKENS: Final = 64
"""The length at which `SINK_THRESHOLD` was published: over longer sequences a mean falls by itself."""


@dataclass(frozen=True, slots=True)
class HeadShare:
    """One head's mean mass on the segments asked for."""

    layer: int
    head: int
    mass: float


@dataclass(frozen=True, slots=True)
class Triangle:
    """Mass from one group of segments on another, by layer (means over heads and rows)."""

    mass: Floats
    """[L]."""
    baseline: Floats | None
    """[L]: the same in random order of the parts; None where the capture holds no baseline."""


@dataclass(frozen=True, slots=True)
class Sink:
    """A key that many heads rest on."""

    position: int
    share: float
    """Of the captured heads for which it is a sink."""


def mass_from(capture: Capture, sources: Sequence[str] = ()) -> Floats:
    """[L, H, S]: mean mass on every segment from the rows of the named segments; none named: all rows.

    Raises: UsageError for an unknown id, or segments without a captured row.
    """
    return _mean_rows(capture, capture.between, _places(capture, sources))


def triangle(capture: Capture, sources: Sequence[str], targets: Sequence[str]) -> Triangle:
    """Mass from the rows of some segments on some segments: thinking → itself, thinking → tool results …"""
    rows, keys = _places(capture, sources), list(_places(capture, targets))
    baseline = None
    if capture.baseline is not None:
        baseline = _mean_rows(capture, capture.baseline, rows)[..., keys].sum(-1).mean(1)
    return Triangle(_mean_rows(capture, capture.between, rows)[..., keys].sum(-1).mean(1), baseline)


def rank_heads(capture: Capture, targets: Sequence[str], sources: Sequence[str] = ()) -> list[HeadShare]:
    """All captured heads by their mean mass on the targets, the largest first."""
    mass = mass_from(capture, sources)[..., list(_places(capture, targets))].sum(-1)
    heads = [
        HeadShare(layer, head, float(mass[i, j]))
        for i, layer in enumerate(capture.layers)
        for j, head in enumerate(capture.heads)
    ]
    return sorted(heads, key=lambda share: (-share.mass, share.layer, share.head))


def find_sinks(
    capture: Capture, *, threshold: float = SINK_THRESHOLD, tokens: int = SINK_TOKENS
) -> list[Sink]:
    """Keys that at least one head in a hundred rests on, by the mean of what the rows after them give.

    As the threshold was published for sequences of `tokens`, only keys that at least as many rows see are
    judged, so that a short tail does not look like a sink. Raises: UsageError without received mass of all
    rows.
    """
    if capture.received is None or capture.options.rows is RowMode.CHOSEN:
        raise UsageError(
            "Expected a capture of all rows with the statistic 'received', got one without; capture it anew."
        )
    seen_by = capture.tokens - np.arange(capture.tokens)
    resting = (capture.received / seen_by > threshold).mean((0, 1))
    resting[seen_by < min(tokens, capture.tokens)] = 0
    return [Sink(int(at), float(resting[at])) for at in np.flatnonzero(resting >= 0.01)]


def _places(capture: Capture, ids: Collection[str]) -> tuple[int, ...]:
    return tuple(capture.segments.index(identity) for identity in ids)


def _mean_rows(capture: Capture, between: Floats, rows: tuple[int, ...]) -> Floats:
    """[L, H, S]: the mean over the captured rows of the segments at `rows` (all where none is named)."""
    counts = capture.rows_in.astype(np.float64)
    chosen = list(rows) if rows else list(range(len(counts)))
    total = counts[chosen].sum()
    if not total:
        raise UsageError("Expected segments with captured rows, got none; capture their positions too.")
    mean: Floats = np.einsum("lhst,s->lht", between[:, :, chosen], counts[chosen] / total).astype(np.float32)
    return mean
