"""When a load has settled: where to cut the beginning of a series of measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

LEAST: Final = 10
"""Fewer values than this tell nothing about settling."""


@dataclass(frozen=True)
class Settling:
    """How many values to leave out at the beginning, and whether the rest can be trusted to be steady."""

    dropped: int
    reached: bool | None
    """None: too few values to tell."""


def settle(values: Sequence[float]) -> Settling:
    """Cut a series, in the order of sending, where the standard error of what is left is smallest (MSER).

    The cut d minimises Σ(x − mean)² / (n − d)² over the last n − d values. A cut in the second half of the series
    means that it never settled: then nothing is left out, and `reached` is False. Source: White (1997), "An
    effective truncation heuristic for bias reduction in simulation output"; the rule of the half: White, Cobb and
    Spratt (2000), "A comparison of five steady-state truncation heuristics for simulation".
    """
    n = len(values)
    if n < LEAST:
        return Settling(0, None)
    series = np.asarray(values, dtype=np.float64)
    cuts = range(n - LEAST // 2 + 1)  # of the last few values any spread, even none, is chance
    errors = [float(series[cut:].var()) / (n - cut) for cut in cuts]
    best = int(np.argmin(errors))
    return Settling(best, True) if best <= n // 2 else Settling(0, False)
