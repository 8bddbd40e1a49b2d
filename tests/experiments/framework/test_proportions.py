from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from experiments.framework.proportions import PairedProportion, mcnemar_exact, paired_proportion
from experiments.framework.statistics import smallest_detectable
from serving.errors import UsageError


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_the_binomial_test_of_the_pairs_that_disagree(one: int, other: int) -> None:
    expected = stats.binomtest(one, one + other).pvalue if one + other else 1.0
    assert mcnemar_exact(one, other) == pytest.approx(expected)


def test_a_change_of_proportion_has_the_published_bounds() -> None:
    # Fagerland, Lydersen and Laake (2017), chapter 8, the data of Bentur et al. (2009).
    found = PairedProportion(1, 7, 1, 12).change
    assert (found.low, found.high) == (pytest.approx(-0.507, abs=5e-4), pytest.approx(-0.026, abs=5e-4))


@given(st.tuples(*[st.integers(0, 60)] * 4).filter(any))
def test_a_change_of_proportion_turns_round_with_its_sides_and_never_claims_certainty(
    counts: tuple[int, int, int, int],
) -> None:
    both, first, second, neither = counts
    one, other = (
        PairedProportion(both, first, second, neither).change,
        PairedProportion(both, second, first, neither).change,
    )
    assert one.low is not None and one.high is not None and other.low is not None
    assert one.high == pytest.approx(-other.low)
    assert one.low < one.estimate < one.high or abs(one.estimate) == 1
    assert one.high - one.low > 0


@pytest.mark.parametrize("comparisons", [1, 3, 12])
def test_what_a_paired_proportion_would_have_found_is_what_the_exact_test_finds(comparisons: int) -> None:
    pairs = 90
    found = PairedProportion(0, 0, 0, pairs).detectable(comparisons=comparisons)
    assert found is not None
    needed = next(count for count in range(pairs) if mcnemar_exact(count, 0) * comparisons <= 0.05)
    assert stats.binom.sf(needed - 1, pairs, found) == pytest.approx(0.8)
    assert PairedProportion(0, 0, 0, needed - 1).detectable(comparisons=comparisons) is None


def test_where_pairs_disagree_their_spread_decides_what_would_have_been_found() -> None:
    noisy = PairedProportion(0, 45, 45, 0)
    changes = [1.0, -1.0] * 45
    assert noisy.detectable() == pytest.approx(smallest_detectable(changes))
    assert noisy.detectable(comparisons=4) == pytest.approx(smallest_detectable(changes, alpha=0.05 / 4))


def test_a_cluster_is_one_pair_and_a_yes_when_all_its_repeats_are() -> None:
    first = {"a": [1.0, 1.0], "b": [1.0, 0.0], "c": [1.0], "alone": [1.0]}
    second = {"a": [1.0], "b": [1.0], "c": [0.0]}
    assert paired_proportion(first, second) == PairedProportion(
        both=1, only_first=1, only_second=1, neither=0
    )
    assert paired_proportion(first, {"other": [1.0]}) is None


@given(st.dictionaries(st.integers(0, 9), st.tuples(st.booleans(), st.booleans()), min_size=1))
def test_the_four_ways_are_the_pairs(decided: dict[int, tuple[bool, bool]]) -> None:
    sides = [{key: [float(both[side])] for key, both in decided.items()} for side in (0, 1)]
    found = paired_proportion(*sides)
    assert found is not None
    assert (found.pairs, found.first, found.second) == (
        len(decided),
        sum(one for one, _ in decided.values()),
        sum(other for _, other in decided.values()),
    )


def test_mcnemar_of_the_published_drug_example() -> None:
    # 59 against 121 discordant pairs, an often repeated textbook table (exact p about 0.000005).
    assert mcnemar_exact(59, 121) == pytest.approx(stats.binomtest(59, 180).pvalue)
    assert mcnemar_exact(0, 5_000) >= 0.0


@pytest.mark.parametrize("counts", [(0, 0, 0, 0), (1, -1, 0, 0)])
def test_no_pairs_and_negative_counts_are_refused(counts: tuple[int, int, int, int]) -> None:
    with pytest.raises(UsageError, match="at least one pair"):
        PairedProportion(*counts)
    with pytest.raises(UsageError, match="cannot be negative"):
        mcnemar_exact(-1, 2)
