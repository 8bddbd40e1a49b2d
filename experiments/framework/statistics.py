"""The statistics every study reports: effects with intervals over clusters, exact tests, detectable effects.

A cluster is what was drawn at random – a task or a seed – and never a trial: repeats of one seed are not
independent, and counting them as if they were makes every interval too narrow. Every random step takes an
explicit NumPy `Generator`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import product
from math import sqrt
from statistics import NormalDist
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from experiments.framework.trials import TrialRecord
from serving.errors import UsageError

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
"""From (resamples, columns) means over clusters to (resamples,) values."""

KeyT = TypeVar("KeyT", bound=Hashable)

RESAMPLES = 10_000
SEEDS_FOR_INTERVAL = 5
"""Fewer clusters give no interval: a bootstrap over two or three says little but looks as if it did."""
_EXACT_CLUSTERS = 14  # 2**14 sign patterns: still instant, and no p-value is then a matter of luck
_CHUNK = 1_000


class Interval(BaseModel):
    """An estimate and its interval; the bounds are `None` where the data cannot give any."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    estimate: float
    low: float | None
    high: float | None
    level: float = 0.95

    @property
    def excludes_zero(self) -> bool:
        """Whether both bounds are known and on one side of zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    def words(self, form: str = ".3g", *, scale: float = 1) -> str:
        """`estimate [low, high]`, each times `scale`; the estimate alone where there are no bounds."""
        shown = f"{scale * self.estimate:{form}}"
        if self.low is None or self.high is None:
            return shown
        return f"{shown} [{scale * self.low:{form}}, {scale * self.high:{form}}]"


class PairedEffect(BaseModel):
    """How an arm differs from the arm it is compared with, over the clusters that both have."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    clusters: int
    unpaired: int
    """Clusters that only one of the two has: left out, and to be reported as excluded."""
    interval: Interval
    p_value: float | None
    detectable: float | None
    """The smallest true difference that this run would have found 8 times in 10; None where all pairs are alike."""

    def would_have_found(self, form: str) -> str:
        """What stands behind an effect that was not found: the detectable one, or that it is not known."""
        if self.detectable is None:
            return "all pairs are alike, so what the run would have found is not known"
        return f"the run would have found {self.detectable:{form}}"


def paired_effect(
    arm: Mapping[KeyT, Sequence[float]],
    reference: Mapping[KeyT, Sequence[float]],
    rng: np.random.Generator,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
) -> PairedEffect:
    """Estimate arm − reference, both given as cluster → values of its trials.

    Each cluster counts once, by the difference of its two means. Interval: percentile bootstrap over clusters
    (`bootstrap`); p: sign-flip test (`sign_flip_p`); detectable: `smallest_detectable`.
    """
    both = [cluster for cluster in arm if cluster in reference]
    if not both:
        raise UsageError(
            "The two arms share no cluster, so nothing is paired; run both on the same tasks and seeds."
        )
    differences = np.array([np.mean(arm[c]) - np.mean(reference[c]) for c in both], dtype=np.float64)
    return PairedEffect(
        clusters=len(both),
        unpaired=len(set(arm) ^ set(reference)),
        interval=bootstrap(differences[:, None], _first_column, rng, level=level, resamples=resamples),
        p_value=sign_flip_p(differences, rng),
        detectable=smallest_detectable(differences, alpha=1 - level),
    )


def by_cluster(records: Iterable[TrialRecord], arm: str, measure: str) -> dict[str, list[float]]:
    """Collect one measure of one arm as cluster → values, the form that `paired_effect` takes.

    Records without a score and unknown values are left out: a cluster that loses all of them is unpaired and
    is counted as such. Raises `UsageError` for a measure that is text.
    """
    values: dict[str, list[float]] = {}
    for record in records:
        value = record.measures.get(measure)
        if record.arm != arm or not record.scored or value is None:
            continue
        if isinstance(value, str):
            raise UsageError(
                f"Measure {measure!r} of arm {arm!r} is the text {value!r}; statistics need numbers."
            )
        values.setdefault(record.spec.cluster, []).append(float(value))
    return values


def cluster_means(clusters: Mapping[KeyT, Sequence[float]]) -> Floats:
    """The mean of each cluster, (clusters,): every one counts once, whatever its number of trials."""
    return np.array([np.mean(values) for values in clusters.values()], dtype=np.float64)


def mean_over_clusters(clusters: Mapping[KeyT, Sequence[float]]) -> Interval | None:
    """The mean of the clusters' means, `bounded`; None without a cluster."""
    return bounded(cluster_means(clusters)[:, None]) if clusters else None


def mean_of(records: Iterable[TrialRecord], arm: str, measure: str) -> Interval | None:
    """`mean_over_clusters` of one measure of one arm; None where no trial knows it."""
    return mean_over_clusters(by_cluster(records, arm, measure))


def judged_alike(
    records: Sequence[TrialRecord], one: str, other: str, measure: str = "success"
) -> tuple[int, int]:
    """In how many of the clusters that two arms share a measure is the same in both, and how many those are."""
    first, second = by_cluster(records, one, measure), by_cluster(records, other, measure)
    both = first.keys() & second.keys()
    return sum(first[cluster] == second[cluster] for cluster in both), len(both)


def bounded(rows: Floats, statistic: Statistic = lambda means: means[:, 0]) -> Interval:
    """Give `bootstrap`'s interval, of the mean by default and with a fixed seed; with few clusters without bounds."""
    found = bootstrap(rows, statistic, np.random.default_rng(0))
    return found if len(rows) >= SEEDS_FOR_INTERVAL else found.model_copy(update={"low": None, "high": None})


def bootstrap(
    rows: Floats,
    statistic: Statistic,
    rng: np.random.Generator,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
) -> Interval:
    """Give a percentile bootstrap interval for a function of the means over clusters.

    `rows` is (clusters, columns), one row a cluster. A share Σ cached / Σ prompt is
    `lambda means: means[:, 0] / means[:, 1]` over the columns (cached, prompt), and its difference between
    two arms takes four columns: clusters stay whole, so the pairing stays.
    Percentile intervals are somewhat narrow below about ten clusters. One cluster gives no bounds.
    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13; clusters as the unit:
    Davison and Hinkley, Bootstrap Methods and their Application (1997), section 3.8.
    """
    rows = np.asarray(rows, dtype=np.float64)
    if rows.ndim != 2 or not rows.size:
        raise UsageError(
            f"A bootstrap needs (clusters, columns) with at least one of each, got shape {rows.shape}."
        )
    if not np.isfinite(rows).all():
        raise UsageError(
            "A bootstrap needs known numbers; leave clusters with unknown values out and report them."
        )
    estimate = float(statistic(rows.mean(axis=0)[None, :])[0])
    clusters = len(rows)
    if clusters < 2:
        return Interval(estimate=estimate, low=None, high=None, level=level)
    values = np.concatenate(
        [
            statistic(rows[rng.integers(0, clusters, size=(size, clusters))].mean(axis=1))
            for size in _chunks(resamples)
        ]
    )
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate=estimate, low=float(low), high=float(high), level=level)


def sign_flip_p(
    differences: Sequence[float] | Floats, rng: np.random.Generator, *, resamples: int = RESAMPLES
) -> float:
    """Give the two-sided p of "the sign of every cluster's difference is a coin toss".

    Exact up to 14 clusters, else `resamples` random patterns with the observed one counted in.
    Source: Fisher, The Design of Experiments (1935), §21; the added one: Phipson and Smyth (2010),
    "Permutation p-values should never be zero".
    """
    values = np.asarray(differences, dtype=np.float64)
    observed = abs(values.sum()) * (1 - 1e-12)  # equal sums must count as equal whatever the rounding
    if len(values) <= _EXACT_CLUSTERS:
        signs = np.array(list(product((-1.0, 1.0), repeat=len(values))))
        return float(np.mean(np.abs(signs @ values) >= observed))
    extreme = 0
    for size in _chunks(resamples):
        signs = rng.choice((-1.0, 1.0), size=(size, len(values)))
        extreme += int(np.count_nonzero(np.abs(signs @ values) >= observed))
    return (extreme + 1) / (resamples + 1)


def wilson(successes: int, trials: int, *, level: float = 0.95) -> Interval:
    """Give the score interval of one proportion of independent trials.

    Source: Wilson (1927), "Probable inference, the law of succession, and statistical inference".
    """
    if not 0 <= successes <= trials or trials < 1:
        raise UsageError(f"A proportion needs 0 ≤ successes ≤ trials ≥ 1, got {successes} of {trials}.")
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = successes / trials
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / (1 + z * z / trials)
    # At 0 and at n of n a bound is 0 or 1 exactly; rounding would put it a hair beyond.
    low = 0.0 if successes == 0 else middle - half
    high = 1.0 if successes == trials else middle + half
    return Interval(estimate=share, low=low, high=high, level=level)


def mean_of_proportions(one: Interval, other: Interval) -> Interval:
    """Give the interval of the mean of two independent proportions, each with its own score interval (`wilson`).

    Where one share is 0 or 1 a bootstrap has nothing to resample and would claim certainty; this does not.
    Source: Newcombe (1998), "Interval estimation for the difference between independent proportions: comparison
    of eleven methods", method 10, for a sum in place of a difference.
    """
    estimate = (one.estimate + other.estimate) / 2
    if None in (one.low, one.high, other.low, other.high):
        return Interval(estimate=estimate, low=None, high=None, level=one.level)
    below = [side.estimate - side.low for side in (one, other) if side.low is not None]
    above = [side.high - side.estimate for side in (one, other) if side.high is not None]
    return Interval(
        estimate=estimate,
        low=estimate - sqrt(sum(part * part for part in below)) / 2,
        high=estimate + sqrt(sum(part * part for part in above)) / 2,
        level=one.level,
    )


def holm(p_values: Mapping[KeyT, float]) -> dict[KeyT, float]:
    """Adjust the p-values of several arms, so that all are judged at one level together.

    Source: Holm (1979), "A simple sequentially rejective multiple test procedure".
    """
    for name, p in p_values.items():
        if not 0 <= p <= 1:
            raise UsageError(f"A p-value lies in 0 … 1, {name!r} has {p}.")
    adjusted: dict[KeyT, float] = {}
    highest = 0.0
    for rank, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p))
        adjusted[name] = highest
    return {name: adjusted[name] for name in p_values}


def smallest_detectable(
    differences: Sequence[float] | Floats, *, alpha: float = 0.05, power: float = 0.8
) -> float | None:
    """Give the smallest true mean difference that a paired test over these clusters finds with `power`.

    (t(1 − α/2) + t(power)) × standard error, t with clusters − 1 degrees of freedom. `None` where all differences are
    alike, one cluster's too: no spread was seen, so nothing is known of what would have been found.
    Source: Bloom (1995), "Minimum detectable effects: a simple way to report the statistical power of
    experimental designs".
    """
    from scipy.special import stdtrit

    values = np.asarray(differences, dtype=np.float64)
    if len(values) < 2 or np.ptp(values) == 0:
        return None
    error = float(values.std(ddof=1)) / sqrt(len(values))
    freedom = len(values) - 1
    return float(stdtrit(freedom, 1 - alpha / 2) + stdtrit(freedom, power)) * error


def _chunks(resamples: int) -> list[int]:
    # Bounded memory: a chunk is at most 1,000 × clusters × columns numbers.
    return [min(_CHUNK, resamples - done) for done in range(0, resamples, _CHUNK)]


def _first_column(means: Floats) -> Floats:
    return means[:, 0]
