"""The baseline of segment × segment mass: the same parts in random order.

Attention falls with distance, so a long block looks at itself much whatever it says. The baseline asks the
same heads about blocks of the same lengths at random places: the context's runs are put in random order, the
mass between them is added up over several orders and divided by the pairs of tokens that could see each
other. Times the pairs that can in truth, it is the mass that lengths and places alone would give.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from serving.attention.segments import Segments

if TYPE_CHECKING:
    from serving.attention.plan import Plan


def shuffled(segments: Segments, orders: int, seed: int) -> list[NDArray[np.int64]]:
    """`orders` times the segment of every token ([T]), its runs in random order, token 0 left in place."""
    rng = np.random.default_rng(seed)
    runs = list(segments.runs)
    # The sink is a place, not a text: with token 0 elsewhere any block there would take its mass.
    fixed = 1 if runs[0].end == 1 else 0
    out = []
    for _ in range(orders):
        order = [*range(fixed), *(fixed + rng.permutation(len(runs) - fixed))]
        owners = [np.full(runs[i].end - runs[i].start, runs[i].segment, dtype=np.int64) for i in order]
        out.append(np.concatenate(owners))
    return out


def visible_pairs(owners: NDArray[np.int64], captured: NDArray[np.int64], parts: int) -> NDArray[np.float64]:
    """[S, S]: pairs of a captured row in the first segment and a key in the second, at or before the row."""
    seen = np.cumsum(np.eye(parts)[owners], axis=0)
    pairs = np.zeros((parts, parts))
    np.add.at(pairs, owners[captured], seen[captured])
    return pairs


def expected_between(plan: Plan, sums: NDArray[np.float32]) -> NDArray[np.float32]:
    """[L, H, S, S]: the mean mass that random orders give, zero where no pair is visible.

    `sums` [L, orders, H, S, S]: mass from all captured rows of a segment on a segment, in every order.
    """
    parts = len(plan.segments.segments)
    in_truth, *in_orders = (visible_pairs(owners, plan.captured, parts) for owners in plan.owners)
    pairs = np.sum(in_orders, axis=0)
    density = sums.sum(1, dtype=np.float64) / np.where(pairs > 0, pairs, np.inf)
    rows = np.bincount(plan.owners[0][plan.captured], minlength=parts)
    expected: NDArray[np.float64] = density * in_truth / np.maximum(rows, 1)[:, None]
    return expected.astype(np.float32)
