from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from experiments.framework.statistics import (
    bootstrap,
    by_cluster,
    cluster_means,
    holm,
    mean_of_proportions,
    mean_over_clusters,
    paired_effect,
    sign_flip_p,
    smallest_detectable,
    wilson,
)
from experiments.framework.trials import Measure, OutcomeKind, TrialRecord, prove_cache_state
from serving.errors import UsageError

FLOATS = st.floats(-100, 100, allow_nan=False)


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_bootstrap_interval_is_scipy_s_percentile_interval() -> None:
    sample = rng(3).gamma(2.0, size=25)
    ours = bootstrap(sample[:, None], lambda means: means[:, 0], rng(), resamples=20_000)
    theirs = stats.bootstrap(
        (sample,), np.mean, n_resamples=20_000, method="percentile", random_state=rng(2)
    ).confidence_interval
    assert ours.estimate == pytest.approx(sample.mean())
    assert ours.low == pytest.approx(theirs.low, abs=0.02)
    assert ours.high == pytest.approx(theirs.high, abs=0.02)


def test_a_ratio_of_sums_is_bootstrapped_over_whole_clusters() -> None:
    prompt = rng(4).integers(100, 2_000, size=30).astype(float)
    cached = prompt * rng(5).uniform(0.3, 0.9, size=30)
    ours = bootstrap(np.stack([cached, prompt], axis=1), lambda m: m[:, 0] / m[:, 1], rng())
    theirs = stats.bootstrap(
        (cached, prompt),
        lambda c, p, axis: c.sum(axis=axis) / p.sum(axis=axis),
        paired=True,
        vectorized=True,
        method="percentile",
        random_state=rng(6),
    ).confidence_interval
    assert ours.estimate == pytest.approx(cached.sum() / prompt.sum())
    assert (ours.low, ours.high) == (
        pytest.approx(theirs.low, abs=0.01),
        pytest.approx(theirs.high, abs=0.01),
    )


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    drawn = rng(7)
    covered = 0
    for _ in range(300):
        interval = bootstrap(drawn.normal(1.0, size=(30, 1)), lambda m: m[:, 0], drawn, resamples=500)
        assert interval.low is not None
        assert interval.high is not None
        covered += interval.low <= 1.0 <= interval.high
    assert 0.89 <= covered / 300 <= 0.98, covered / 300


def test_repeats_of_one_cluster_do_not_narrow_the_interval() -> None:
    values = {f"seed-{n}": [float(v)] for n, v in enumerate(rng(8).normal(size=12))}
    zero = {name: [0.0] for name in values}
    once = paired_effect(values, zero, rng())
    often = paired_effect({name: v * 50 for name, v in values.items()}, zero, rng())
    assert often.interval.low == pytest.approx(once.interval.low)
    assert often.interval.high == pytest.approx(once.interval.high)
    assert (often.clusters, often.p_value) == (once.clusters, once.p_value)


@given(
    st.dictionaries(st.integers(0, 30), st.lists(FLOATS, min_size=1, max_size=3), min_size=2, max_size=12),
    FLOATS,
)
def test_a_paired_effect_only_sees_differences(arm: dict[int, list[float]], shift: float) -> None:
    reference = {cluster: [value - shift for value in values] for cluster, values in arm.items()}
    effect = paired_effect(arm, reference, rng(), resamples=200)
    assert effect.interval.estimate == pytest.approx(shift, abs=1e-9)
    assert effect.interval.low == pytest.approx(shift, abs=1e-9)
    assert effect.interval.high == pytest.approx(shift, abs=1e-9)
    # Without rounding all pairs are alike, which is None.
    assert effect.detectable is None or effect.detectable == pytest.approx(0, abs=1e-9)


def test_clusters_that_one_arm_lacks_are_counted_and_left_out() -> None:
    effect = paired_effect({"a": [1.0], "b": [2.0], "c": [9.0]}, {"a": [0.0], "b": [1.0], "d": [5.0]}, rng())
    assert (effect.clusters, effect.unpaired, effect.interval.estimate) == (2, 2, 1.0)
    with pytest.raises(UsageError, match="share no cluster"):
        paired_effect({"a": [1.0]}, {"b": [1.0]}, rng())


def test_one_cluster_gives_an_estimate_without_bounds() -> None:
    effect = paired_effect({"a": [3.0]}, {"a": [1.0]}, rng())
    assert (effect.interval.estimate, effect.interval.low, effect.interval.high) == (2.0, None, None)
    assert effect.detectable is None
    assert not effect.interval.excludes_zero


def test_the_same_generator_seed_gives_the_same_interval() -> None:
    rows = rng(9).normal(size=(9, 1))
    assert bootstrap(rows, lambda m: m[:, 0], rng(1)) == bootstrap(rows, lambda m: m[:, 0], rng(1))
    assert bootstrap(rows, lambda m: m[:, 0], rng(1)) != bootstrap(rows, lambda m: m[:, 0], rng(2))


def test_unknown_values_are_refused_instead_of_spreading() -> None:
    with pytest.raises(UsageError, match="leave clusters with unknown values out"):
        bootstrap(np.array([[1.0], [np.nan]]), lambda m: m[:, 0], rng())
    with pytest.raises(UsageError, match="clusters, columns"):
        bootstrap(np.empty((0, 1)), lambda m: m[:, 0], rng())


@given(st.lists(st.integers(-20, 20), min_size=2, max_size=9))
def test_the_sign_flip_p_is_scipy_s_exact_permutation_test(differences: list[int]) -> None:
    theirs = stats.permutation_test(
        (np.array(differences, dtype=float),),
        lambda x, axis: np.abs(x.sum(axis=axis)),
        permutation_type="samples",
        alternative="greater",
        n_resamples=np.inf,
        vectorized=True,
    )
    assert sign_flip_p(differences, rng()) == pytest.approx(theirs.pvalue)


def test_the_sampled_sign_flip_p_is_near_the_exact_one_and_never_zero() -> None:
    values = rng(10).normal(0.5, size=16)
    signs = np.array(np.meshgrid(*[(-1, 1)] * 16)).reshape(16, -1).T
    exact = float(np.mean(np.abs(signs @ values) >= abs(values.sum()) - 1e-9))
    assert sign_flip_p(values, rng()) == pytest.approx(exact, abs=0.015)
    assert sign_flip_p(np.full(40, 1.0), rng()) == 1 / 10_001


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_scipy_s(counts: tuple[int, int]) -> None:
    ours = wilson(*counts)
    theirs = stats.binomtest(*counts).proportion_ci(method="wilson")
    assert (ours.low, ours.high) == (
        pytest.approx(theirs.low, abs=1e-12),
        pytest.approx(theirs.high, abs=1e-12),
    )


@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1), min_size=1))
def test_holm_is_the_closed_test_of_bonferroni(p_values: dict[str, float]) -> None:
    names = sorted(p_values)
    subsets = [s for size in range(1, len(names) + 1) for s in combinations(names, size)]
    closed = {
        name: max(min(1.0, len(s) * min(p_values[n] for n in s)) for s in subsets if name in s)
        for name in names
    }
    assert holm(p_values) == pytest.approx(closed)
    assert list(holm(p_values)) == list(p_values)


def test_holm_of_a_worked_example() -> None:
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert adjusted == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})


@pytest.mark.parametrize("clusters", [8, 12, 20, 50])
def test_the_smallest_detectable_effect_is_found_with_the_power_it_names(clusters: int) -> None:
    differences = rng(clusters).normal(size=clusters)
    effect = smallest_detectable(differences)
    assert effect is not None
    freedom = clusters - 1
    shift = effect / (differences.std(ddof=1) / clusters**0.5)
    limit = stats.t.ppf(0.975, freedom)
    power = stats.nct.sf(limit, freedom, shift) + stats.nct.cdf(-limit, freedom, shift)
    assert power == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("differences", [[], [1.0], [0.0] * 12, [3.0] * 12])
def test_without_a_spread_nothing_is_known_of_what_would_have_been_found(differences: list[float]) -> None:
    assert smallest_detectable(differences) is None


def test_what_would_have_been_found_is_said_or_said_to_be_unknown() -> None:
    def said(first: list[float]) -> str:
        arm = {seed: [value] for seed, value in enumerate(first)}
        return paired_effect(arm, {seed: [0.0] for seed in arm}, rng()).would_have_found(".2f")

    assert said([0.0] * 12) == "all pairs are alike, so what the run would have found is not known"
    assert said([1.0, -1.0] * 6) == "the run would have found 0.93"


@pytest.mark.parametrize("wrong", [(-1, 3), (4, 3), (0, 0)])
def test_impossible_counts_are_refused(wrong: tuple[int, int]) -> None:
    with pytest.raises(UsageError):
        wilson(*wrong)
    with pytest.raises(UsageError):
        holm({"a": 1.5})


def test_unknown_and_unscored_values_leave_their_cluster_unpaired() -> None:
    def record(arm: str, seed: int, value: Measure, kind: OutcomeKind = OutcomeKind.OK) -> TrialRecord:
        return TrialRecord(
            study="s", arm=arm, factors={}, task="t", seed=seed, repeat=0, order_index=0, attempt=1, salt="s",
            session=0, environment="e", started="", seconds=0, kind=kind, outcome="",
            cache=prove_cache_state(()), measures={"m": value},
        )  # fmt: skip

    records = [
        record("a", 0, 2), record("a", 0, 4.0), record("a", 1, True), record("a", 2, None),
        record("a", 3, 9, OutcomeKind.INFRASTRUCTURE_ERROR), record("b", 0, 7),
    ]  # fmt: skip
    assert by_cluster(records, "a", "m") == {"t#0": [2.0, 4.0], "t#1": [1.0]}
    assert by_cluster(records, "a", "other") == {}
    with pytest.raises(UsageError, match="the text 'yes'"):
        by_cluster([record("a", 0, "yes")], "a", "m")


@pytest.mark.parametrize(("one", "other", "cases"), [(0.5, 0.5, 20), (0.95, 0.9, 26), (1.0, 0.1, 26)])
def test_the_mean_of_two_proportions_covers_its_truth_and_is_never_certain(
    one: float, other: float, cases: int
) -> None:
    draws = rng(7)
    covered = 0
    for _ in range(2_000):
        sides = [wilson(int(draws.binomial(cases, share)), cases) for share in (one, other)]
        found = mean_of_proportions(*sides)
        assert found.low is not None and found.high is not None
        assert found.low < found.high
        assert 0 <= found.low <= found.estimate <= found.high <= 1
        covered += found.low <= (one + other) / 2 <= found.high
    assert covered > 0.93 * 2_000


def test_perfect_shares_leave_room_below() -> None:
    found = mean_of_proportions(wilson(26, 26), wilson(26, 26))
    assert (found.estimate, found.high) == (1.0, 1.0)
    assert found.low is not None
    assert 0.85 < found.low < 0.95


def test_a_cluster_counts_once_whatever_its_number_of_trials():
    few = {"a": [1.0], "b": [2.0, 4.0, 6.0]}
    found = mean_over_clusters(few)
    assert found is not None
    assert (found.estimate, found.low, found.high) == (2.5, None, None)
    assert list(cluster_means(few)) == [1, 4]
    assert mean_over_clusters({}) is None
