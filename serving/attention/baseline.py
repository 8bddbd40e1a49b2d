"""The baseline of segment × segment mass: the same parts in random order.

Attention falls with distance, so a long block looks at itself much whatever it says. The baseline asks the
same heads about blocks of the same lengths at random places of the same sequence: the labels of the context's
runs are put in random order, and the mass between the blocks they mark is added up over several orders. As a
block further back has more keys before it, the sums are taken relative to what rows that look evenly at all
they see would give: baseline = even mass in truth × (mass in random orders / even mass in random orders).
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


def even_mass(owners: NDArray[np.int64], captured: NDArray[np.int64], parts: int) -> NDArray[np.float64]:
    """[S, S]: mass from the captured rows of a segment on a segment if every row looked evenly at all it sees."""
    seen = np.cumsum(np.eye(parts)[owners], axis=0)[captured] / (captured[:, None] + 1)
    mass = np.zeros((parts, parts))
    np.add.at(mass, owners[captured], seen)
    return mass


def expected_between(plan: Plan, sums: NDArray[np.float32]) -> NDArray[np.float32]:
    """[L, H, S, S]: the mean mass of a captured row that random orders give, zero where nothing is visible.

    `sums` [L, orders, H, S, S]: mass from all captured rows of a segment on a segment, in every order.
    """
    parts = len(plan.segments.segments)
    in_truth, *in_orders = (even_mass(owners, plan.captured, parts) for owners in plan.owners)
    even = np.sum(in_orders, axis=0)
    relative = sums.sum(1, dtype=np.float64) / np.where(even > 0, even, np.inf)
    rows = np.bincount(plan.owners[0][plan.captured], minlength=parts)
    expected: NDArray[np.float64] = relative * in_truth / np.maximum(rows, 1)[:, None]
    return expected.astype(np.float32)
