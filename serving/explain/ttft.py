"""From cached and uncached tokens to seconds: a model of the time to first token, fitted to one machine.

    TTFT = a + b · u + c · u · (k + u / 2)        u uncached, k cached prompt tokens

`a` is what every request costs; `b` what each computed token costs by itself (the linear layers); `c` what it
costs to attend to every token before it: token i of the uncached ones sees k + i others, and their sum is
u · (k + u / 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from serving.errors import LabError, UsageError

Floats = NDArray[np.float64]
_COEFFICIENTS = 3


class TtftSample(BaseModel):
    """One measured request."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    cached_tokens: int = Field(ge=0)
    uncached_tokens: int = Field(ge=0)
    seconds: float = Field(ge=0)
    """Until the first token of any kind."""
    cluster: str
    """What was drawn at random (a run, a seed): intervals and held-out errors keep it whole."""


class Loss(StrEnum):
    """What the fit makes small."""

    ABSOLUTE = "absolute"
    """The sum of absolute errors: the typical request. Whatever interrupts a server only adds time, and squares
    would let a few such requests decide."""
    SQUARED = "squared"
    """The sum of squared errors: the mean request, interruptions included."""


class TtftModel(BaseModel):
    """A fitted machine: seconds per request, per computed token, and per pair of tokens that attend."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    request_s: float = Field(ge=0)
    token_s: float = Field(ge=0)
    pair_s: float = Field(ge=0)

    def seconds(self, cached_tokens: int, uncached_tokens: int) -> float:
        """The predicted time to first token."""
        pairs = uncached_tokens * (cached_tokens + uncached_tokens / 2)
        return self.request_s + self.token_s * uncached_tokens + self.pair_s * pairs


class Bounds(BaseModel):
    """A coefficient's interval; None where one cluster cannot give any."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    low: float
    high: float


class HeldOut(BaseModel):
    """A request that the fit did not see, measured and predicted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sample: TtftSample
    predicted_s: float

    @property
    def error_s(self) -> float:
        """Predicted − measured."""
        return self.predicted_s - self.sample.seconds


def fit_ttft(samples: Sequence[TtftSample], loss: Loss = Loss.ABSOLUTE) -> TtftModel:
    """Fit the three coefficients, none below 0.

    Raises: UsageError where the samples cannot tell them apart: fewer than three, or all of one shape.
    """
    columns, seconds = _columns(samples), np.array([sample.seconds for sample in samples], dtype=np.float64)
    if len(samples) < _COEFFICIENTS or np.linalg.matrix_rank(columns) < _COEFFICIENTS:
        raise UsageError(
            f"A fit of three coefficients needs requests of different lengths and cached shares; got {len(samples)} "
            "that do not tell them apart. Measure cold and warm prompts of several lengths."
        )
    # Pairs are millions where requests are ones: without a common scale the solvers lose digits.
    scale = columns.mean(axis=0)
    solve = _least_absolute if loss is Loss.ABSOLUTE else _least_squares
    request_s, token_s, pair_s = (float(value) for value in solve(columns / scale, seconds) / scale)
    return TtftModel(request_s=request_s, token_s=token_s, pair_s=pair_s)


def bootstrap_ttft(
    samples: Sequence[TtftSample],
    rng: np.random.Generator,
    *,
    loss: Loss = Loss.ABSOLUTE,
    resamples: int = 400,
    level: float = 0.95,
) -> dict[str, Bounds] | None:
    """Percentile intervals of the coefficients, by name, over resampled clusters; None below two clusters.

    A resample that cannot tell the coefficients apart is drawn again. Source: Efron and Tibshirani, An
    Introduction to the Bootstrap (1993), chapter 13.
    """
    clusters = _by_cluster(samples)
    if len(clusters) < 2:
        return None
    fits: list[TtftModel] = []
    for _ in range(10 * resamples):
        drawn = rng.integers(0, len(clusters), size=len(clusters))
        try:
            fits.append(fit_ttft([sample for index in drawn for sample in clusters[index]], loss))
        except UsageError:
            continue
        if len(fits) == resamples:
            break
    else:
        raise LabError(
            f"Of {10 * resamples} resamples only {len(fits)} could be fitted: the clusters are too unlike each "
            "other for intervals. Measure every shape of request in each of them."
        )
    names = tuple(TtftModel.model_fields)
    ends = [(1 - level) / 2, (1 + level) / 2]
    quantiles = {name: np.quantile([getattr(fit, name) for fit in fits], ends) for name in names}
    return {name: Bounds(low=float(low), high=float(high)) for name, (low, high) in quantiles.items()}


def held_out(
    samples: Sequence[TtftSample], *, loss: Loss = Loss.ABSOLUTE, folds: int = 10
) -> tuple[HeldOut, ...]:
    """Predict every request from a fit that has seen nothing of its cluster, in the order given.

    Clusters are dealt to `folds` in turn (fewer where there are fewer). Raises: UsageError below two clusters.
    """
    names = list(dict.fromkeys(sample.cluster for sample in samples))
    if len(names) < 2:
        raise UsageError(
            f"Held-out requests need at least two clusters (runs or seeds), got {len(names)}. Measure again "
            "under another seed."
        )
    fold_of = {name: place % folds for place, name in enumerate(names)}
    models = {
        fold: fit_ttft([sample for sample in samples if fold_of[sample.cluster] != fold], loss)
        for fold in set(fold_of.values())
    }
    return tuple(
        HeldOut(
            sample=sample,
            predicted_s=models[fold_of[sample.cluster]].seconds(sample.cached_tokens, sample.uncached_tokens),
        )
        for sample in samples
    )


class TtftFit(BaseModel):
    """A model with what is known of how good it is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: TtftModel
    loss: Loss
    samples: int
    clusters: int
    intervals: dict[str, Bounds] | None
    """Of the coefficients, by name."""
    median_error_s: float
    """Median absolute error on held-out requests."""
    median_relative_error: float
    """The same as a share of the measured time."""
    p90_error_s: float
    """Nine of ten held-out requests are not further off."""
    held_out: tuple[HeldOut, ...] = ()


def judge_ttft(samples: Sequence[TtftSample], loss: Loss = Loss.ABSOLUTE, *, seed: int = 0) -> TtftFit:
    """Fit, give intervals, and predict every sample held out. Raises as `fit_ttft` and `held_out` do."""
    predictions = held_out(samples, loss=loss)
    errors = np.array([abs(prediction.error_s) for prediction in predictions])
    measured = np.array([prediction.sample.seconds for prediction in predictions])
    timed = measured > 0
    return TtftFit(
        model=fit_ttft(samples, loss),
        loss=loss,
        samples=len(samples),
        clusters=len(_by_cluster(samples)),
        intervals=bootstrap_ttft(samples, np.random.default_rng(seed), loss=loss),
        median_error_s=float(np.median(errors)),
        median_relative_error=float(np.median(errors[timed] / measured[timed])),
        p90_error_s=float(np.quantile(errors, 0.9)),
        held_out=predictions,
    )


def _columns(samples: Sequence[TtftSample]) -> Floats:
    cached = np.array([sample.cached_tokens for sample in samples], dtype=np.float64)
    uncached = np.array([sample.uncached_tokens for sample in samples], dtype=np.float64)
    return np.column_stack([np.ones_like(uncached), uncached, uncached * (cached + uncached / 2)])


def _least_squares(columns: Floats, seconds: Floats) -> Floats:
    from scipy.optimize import nnls

    return np.asarray(nnls(columns, seconds)[0], dtype=np.float64)


def _least_absolute(columns: Floats, seconds: Floats) -> Floats:
    """Median regression with coefficients of at least 0, by its dual program, whose few rows make it fast.

    The dual weighs each sample between -1 (predicted too high) and 1 (too low); the prices of its three rows
    are the coefficients. Source: Koenker, Quantile Regression (2005), section 6.2.
    """
    from scipy.optimize import linprog

    solution = linprog(-seconds, A_ub=columns.T, b_ub=np.zeros(_COEFFICIENTS), bounds=(-1, 1), method="highs")
    if not solution.success:
        raise LabError(f"The fit did not converge: {solution.message}. Look at the samples.")
    return np.maximum(-np.asarray(solution.ineqlin.marginals, dtype=np.float64), 0.0)


def _by_cluster(samples: Sequence[TtftSample]) -> list[list[TtftSample]]:
    clusters: dict[str, list[TtftSample]] = {}
    for sample in samples:
        clusters.setdefault(sample.cluster, []).append(sample)
    return list(clusters.values())
