"""Two arms that decided the same clusters yes or no: the pairs, the exact test, the change and what was detectable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from math import comb, sqrt

from experiments.framework.statistics import Interval, KeyT, smallest_detectable, wilson
from serving.errors import UsageError


@dataclass(frozen=True)
class PairedProportion:
    """How many clusters were decided in each of the four ways; one pair a cluster, as McNemar's test wants it."""

    both: int
    only_first: int
    only_second: int
    neither: int

    def __post_init__(self) -> None:
        if min(self.both, self.only_first, self.only_second, self.neither) < 0 or not self.pairs:
            raise UsageError(f"Paired proportions need at least one pair and no negative count, got {self}.")

    @property
    def pairs(self) -> int:
        """Clusters that both arms decided."""
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def first(self) -> int:
        """Clusters with a yes from the first arm."""
        return self.both + self.only_first

    @property
    def second(self) -> int:
        """Clusters with a yes from the second arm."""
        return self.both + self.only_second

    @property
    def p_value(self) -> float:
        """Two-sided exact p of the pairs that disagree."""
        return mcnemar_exact(self.only_first, self.only_second)

    @property
    def change(self) -> Interval:
        """Second minus first, with bounds.

        Where no pair disagrees a bootstrap has nothing to resample and would claim certainty; this does not.
        Source: Newcombe (1998), "Improved confidence intervals for the difference between binomial proportions based
        on paired data", method 10: the score intervals of both proportions, joined by their correlation.
        """
        one, other = wilson(self.first, self.pairs), wilson(self.second, self.pairs)
        phi = self._correlation()

        def reach(up: Interval, down: Interval) -> float:
            above, below = (up.high or 0.0) - up.estimate, down.estimate - (down.low or 0.0)
            return sqrt(max(0.0, above * above - 2 * phi * above * below + below * below))

        change = other.estimate - one.estimate
        return Interval(
            estimate=change, low=change - reach(one, other), high=change + reach(other, one), level=one.level
        )

    def detectable(self, *, comparisons: int = 1, alpha: float = 0.05, power: float = 0.8) -> float | None:
        """Give the smallest true change that the exact test finds with `power`, as one of so many comparisons.

        Each comparison has its share of `alpha` (Bonferroni: Holm's first step, the hardest one). The change is
        `smallest_detectable`, but never less than what the exact test needs at all: so many pairs that change in one
        direction that their p is small enough, though none changes in the other. So it is not 0 where no pair
        disagreed. `None` for too few pairs to find anything.
        """
        from scipy.special import betaincinv

        level = alpha / comparisons
        changes = [-1.0] * self.only_first + [1.0] * self.only_second + [0.0] * (self.both + self.neither)
        found = smallest_detectable(changes, alpha=level, power=power)
        needed = next(pairs for pairs in count(1) if mcnemar_exact(pairs, 0) <= level)
        if self.pairs < needed:
            return None
        return max(found or 0.0, float(betaincinv(needed, self.pairs - needed + 1, power)))

    def _correlation(self) -> float:
        """Phi of the four counts, drawn towards 0 by half a pair where it is positive."""
        product = self.first * (self.pairs - self.first) * self.second * (self.pairs - self.second)
        if not product:
            return 0.0
        determinant: float = self.both * self.neither - self.only_first * self.only_second
        if determinant > 0:
            determinant = max(0.0, determinant - self.pairs / 2)
        return determinant / sqrt(product)


def paired_proportion(
    first: Mapping[KeyT, Sequence[float]], second: Mapping[KeyT, Sequence[float]]
) -> PairedProportion | None:
    """Count how two arms decided the clusters that both have; None where they share none.

    Takes what `by_cluster` gives. A cluster with repeats is a yes when all of them are: repeats of one seed are not
    independent, so a cluster is one pair.
    """
    decided = [(all(first[key]), all(second[key])) for key in first.keys() & second.keys()]
    if not decided:
        return None
    return PairedProportion(
        both=decided.count((True, True)),
        only_first=decided.count((True, False)),
        only_second=decided.count((False, True)),
        neither=decided.count((False, False)),
    )


def mcnemar_exact(only_first: int, only_second: int) -> float:
    """Give the two-sided exact p of paired yes/no results, from the pairs that disagree.

    One pair a cluster: pairs of one seed are not independent (then use `paired_effect`).
    Source: McNemar (1947); exact form: the binomial test with p = ½ on the discordant pairs.
    """
    if only_first < 0 or only_second < 0:
        raise UsageError(f"Counts of pairs cannot be negative, got {only_first} and {only_second}.")
    discordant = only_first + only_second
    tail: int = sum(comb(discordant, k) for k in range(min(only_first, only_second) + 1))
    return min(1.0, float(Fraction(2 * tail, 2**discordant)))
