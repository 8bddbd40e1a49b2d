"""What the study `status-bar` measures of an arm: balanced accuracy, how an error grows, and both against no bar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from experiments.framework import Arm, TrialRecord, by_cluster, paired_effect
from experiments.framework.arms import NULL_REBUILD
from experiments.framework.statistics import (
    SEEDS_FOR_INTERVAL,
    Floats,
    Interval,
    PairedEffect,
    bounded,
    holm,
    mean_of_proportions,
    wilson,
)
from experiments.status_bar.arms import NO_BAR

DECISION: Final = "decision"
ACTION: Final = "action"
ASKED: Final = {DECISION: "May it call again?", ACTION: "What does it do next?"}


def of_arm(records: Sequence[TrialRecord], arm: str) -> list[TrialRecord]:
    """The scored records of one arm."""
    return [record for record in records if record.arm == arm and record.scored]


def call_counts(records: Sequence[TrialRecord]) -> list[int]:
    """The numbers of calls made (N) that occur, rising."""
    return sorted({calls for record in records if isinstance(calls := record.measures["calls"], int)})


def balanced(records: Sequence[TrialRecord], arm: str, asked: str) -> Interval | None:
    """Balanced accuracy: the mean of the shares right where a call is left and where none is.

    Always saying the same gives 0.5. Bounds from the two shares' score intervals, for every scenario is asked once
    an arm; None where one of the two kinds is missing.
    """
    sides = []
    for left in (True, False):
        own = [record for record in of_arm(records, arm) if record.measures["may_call"] is left]
        if not own:
            return None
        sides.append(wilson(sum(record.measures[f"{asked}_right"] is True for record in own), len(own)))
    return mean_of_proportions(*sides)


def slope(
    records: Sequence[TrialRecord], arm: str, measure: Callable[[TrialRecord], float | None]
) -> Interval | None:
    """Least-squares slope of a measure on N, scenarios resampled; None where N does not vary."""
    points = [
        (float(calls), value)
        for record in of_arm(records, arm)
        if isinstance(calls := record.measures["calls"], int) and (value := measure(record)) is not None
    ]
    if len({calls for calls, _ in points}) < 2:
        return None
    rows = np.array([(x, y, x * y, x * x) for x, y in points])
    return bounded(rows, _slope)


def absolute_error(record: TrialRecord) -> float | None:
    """How far the count is off; None where the answer had no number."""
    error = record.measures["count_error"]
    return None if not isinstance(error, int) else float(abs(error))


def effects_of(
    arms: Sequence[Arm], records: Sequence[TrialRecord], measure: str
) -> dict[str, tuple[PairedEffect, float]]:
    """Every arm against no bar, with p by Holm over the arms; the null arm is the base again and no test."""
    found = {
        arm.name: effect
        for arm in arms
        if arm.name != NULL_REBUILD and (effect := _effect(records, arm.name, measure)) is not None
    }
    adjusted = holm({name: one.p_value for name, one in found.items() if one.p_value is not None})
    return {name: (one, adjusted.get(name, 1.0)) for name, one in found.items()}


def _effect(records: Sequence[TrialRecord], arm: str, measure: str) -> PairedEffect | None:
    one, other = by_cluster(records, arm, measure), by_cluster(records, NO_BAR, measure)
    if arm == NO_BAR or len(one.keys() & other.keys()) < SEEDS_FOR_INTERVAL:
        return None
    return paired_effect(one, other, np.random.default_rng(0))


def _slope(means: Floats) -> Floats:
    x, y, xy, xx = means.T
    spread = xx - x * x
    found: Floats = np.divide(xy - x * y, spread, out=np.zeros_like(spread), where=spread > 1e-12)
    return found
