"""When a load has settled: where to cut the beginning of a series of measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Final

import numpy as np

from experiments.framework.statistics import Floats

LEAST: Final = 10
"""Fewer values than this tell nothing about settling."""
LATE_ALPHA: Final = 0.01
DRIFT_ALPHA: Final = 0.001
"""Levels of the trend test. In noise without any trend the least standard error lies in the second half of one series
in seven (16 values), so that alone is no finding; a trend in what is left is one by itself, and so judged harder."""


@dataclass(frozen=True)
class Settling:
    """How many values to leave out at the beginning, and whether the rest can be trusted to be steady."""

    dropped: int
    reached: bool | None
    """None: too few values to tell."""


def settle(values: Sequence[float]) -> Settling:
    """Cut a series, in the order of sending, where the standard error of what is left is smallest (MSER).

    The cut d minimises Σ(x − mean)² / (n − d)² over the last n − d values, and at most the first half is left out.
    It never settled, and nothing is left out, where that minimum lies in the second half and the series has a trend,
    or where what is left has one. Source: White (1997), "An effective truncation heuristic for bias reduction in
    simulation output"; the rule of the half: White, Cobb and Spratt (2000), "A comparison of five steady-state
    truncation heuristics for simulation"; the trend: Mann (1945), "Nonparametric tests against trend".
    """
    n = len(values)
    if n < LEAST:
        return Settling(0, None)
    series = np.asarray(values, dtype=np.float64)
    cuts = range(n - LEAST // 2 + 1)  # of the last few values any spread, even none, is chance
    errors = [float(series[cut:].var()) / (n - cut) for cut in cuts]
    best, half = int(np.argmin(errors)), n // 2
    cut = best if best <= half else int(np.argmin(errors[: half + 1]))
    if (best > half and _trend_p(series) < LATE_ALPHA) or _trend_p(series[cut:]) < DRIFT_ALPHA:
        return Settling(0, False)
    return Settling(cut, True)


def _trend_p(series: Floats) -> float:
    """Two-sided p of "every order is as likely", by the number of pairs that rise (normal approximation, ties counted).

    1 for a series in which no pair differs.
    """
    n = len(series)
    rises = float(np.sign(series[None, :] - series[:, None])[np.triu_indices(n, 1)].sum())
    _, ties = np.unique(series, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    if variance <= 0:
        return 1.0
    return 2 * NormalDist().cdf(-max(0.0, abs(rises) - 1) / sqrt(variance))
