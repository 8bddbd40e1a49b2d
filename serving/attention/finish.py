"""From sums to a `Capture`: means, the two resolutions of the maps, and the baseline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from serving.attention.baseline import expected_between
from serving.attention.capture import Capture, Floats, Integers, ModelIdentity
from serving.attention.plan import Arrays, Plan


def to_capture(
    plan: Plan,
    arrays: Arrays,
    model: ModelIdentity,
    token_ids: Sequence[int],
    pieces: Sequence[str] | None = None,
) -> Capture:
    """The capture of a finished recorder's sums (`Recorder.finish`); `pieces` are the tokens' texts."""
    rows_in = np.bincount(plan.owners[0][plan.captured], minlength=len(plan.segments.segments))
    between = arrays["between"]
    coarse, mean, most = _maps(plan, arrays.get("heatmap"))
    return Capture(
        model=model,
        options=plan.options,
        segments=plan.segments,
        token_ids=tuple(token_ids),
        pieces=None if pieces is None else tuple(pieces),
        layers=plan.layers,
        heads=plan.heads,
        row_starts=plan.row_starts,
        row_ends=plan.row_ends,
        mass=arrays["mass"],
        sink=arrays["sink"],
        between=between[:, 0] / _counts(rows_in)[:, None],
        rows_in=rows_in,
        entropy=arrays.get("entropy"),
        peak=arrays.get("peak"),
        distance=arrays.get("distance"),
        distance_sd=arrays.get("distance_sd"),
        received=arrays.get("received"),
        heatmap=coarse,
        heatmap_mean=mean,
        heatmap_max=most,
        full=arrays.get("full"),
        queries=arrays.get("queries"),
        keys=arrays.get("keys"),
        scales=arrays.get("scales"),
        baseline=expected_between(plan, between[:, 1:]) if plan.options.shuffles else None,
    )


def _maps(plan: Plan, sums: Floats | None) -> tuple[Floats | None, Floats | None, Floats | None]:
    """The map of every head, and mean and maximum over heads in twice the resolution."""
    if sums is None:
        return None, None, None
    counts = np.bincount(plan.captured // plan.bin_width, minlength=plan.bins)
    layers = [_map_of_layer(layer, counts) for layer in sums]  # one by one: the sums are large
    coarse, mean, most = (np.stack(parts) for parts in zip(*layers, strict=True))
    return coarse, mean, most


def _map_of_layer(sums: Floats, counts: Integers) -> tuple[Floats, Floats, Floats]:
    """Sums [H, 2B, 2B] and captured rows [2B] of every bin → [H, B, B], [2B, 2B], [2B, 2B]."""
    fine = sums / _counts(counts)[:, None]
    odd = len(counts) % 2
    paired = np.pad(sums, ((0, 0), (0, odd), (0, odd)))
    half = paired.shape[-1] // 2
    # Keys are added up and rows averaged: a row of a coarser map still sums to 1.
    paired = paired.reshape(len(sums), half, 2, half, 2).sum((2, 4))
    rows = np.pad(counts, (0, odd)).reshape(half, 2).sum(1)
    return paired / _counts(rows)[:, None], fine.mean(0), fine.max(0)


def _counts(values: Integers) -> Floats:
    """Divisors that leave a sum of nothing at zero."""
    return np.maximum(values, 1).astype(np.float32)
