from __future__ import annotations

from collections.abc import Sequence

from experiments.framework import Arm, CallRecord, TrialRecord
from experiments.framework.statistics import SEEDS_FOR_INTERVAL
from experiments.framework.trials import CacheState, CacheTemperature, OutcomeKind
from experiments.prefix_cache import ARMS, PrefixCacheStudy
from experiments.prefix_cache.analysis import analyse


def record(
    arm: str, seed: int, *, cached: int, prompt: int = 100, ttft: float = 1.0, predicted: int | None = None
):
    call = CallRecord(
        prompt_tokens=prompt,
        cached_tokens=cached,
        predicted_tokens=cached if predicted is None else predicted,
        ttft_s=ttft,
    )
    return TrialRecord(
        study="prefix-cache",
        arm=arm,
        factors={},
        task="file-tour-1",
        seed=seed,
        repeat=0,
        order_index=0,
        attempt=1,
        salt=f"{arm}-{seed}",
        session=0,
        environment="e",
        started="",
        seconds=1.0,
        kind=OutcomeKind.OK,
        outcome="",
        cache=CacheState(temperature=CacheTemperature.COLD, proof=""),
        measures={
            "prompt_tokens": prompt,
            "cached_tokens": cached,
            "uncached_tokens": prompt - cached,
            "ttft_s": ttft,
        },
        calls=(call,),
    )


def two_arms(seeds: int, worst_cached: int = 0) -> list[TrialRecord]:
    return [
        made
        for seed in range(seeds)
        for made in (
            record("append-only", seed, cached=80, ttft=1.0 + seed / 10),
            record("clock-system-head", seed, cached=worst_cached, ttft=4.0 + seed / 5),
        )
    ]


def conclusion(records: Sequence[TrialRecord], arms: tuple[Arm, ...] = ARMS) -> str:
    return analyse(arms, records).conclusion


def test_the_sentence_follows_the_numbers() -> None:
    assert "reuses 0% and makes the server compute 5.0 times as many" in conclusion(two_arms(1))
    assert "reuses 50% and makes the server compute 2.5 times as many" in conclusion(two_arms(1, 50))


def test_no_arm_is_called_dear_where_none_is() -> None:
    sentence = conclusion(two_arms(1, worst_cached=80))
    assert "dearest" not in sentence
    assert "2 of 2 calls" in sentence


def test_a_broken_prediction_is_counted_not_hidden() -> None:
    records = [record("append-only", 0, cached=80), record("null-rebuild", 0, cached=80, predicted=96)]
    assert "agree in 1 of 2 calls" in conclusion(records)


def test_too_few_seeds_give_no_interval_and_no_sentence_about_time() -> None:
    analysis = analyse(ARMS, two_arms(SEEDS_FOR_INTERVAL - 1))
    assert "waiting" not in analysis.conclusion
    assert "[" not in str(analysis.tables[0].rows[1][6])


def test_enough_seeds_give_an_interval_a_corrected_p_and_a_detectable_effect() -> None:
    analysis = analyse(ARMS, two_arms(8))
    assert "95 % interval" in analysis.conclusion
    assert "8 seeds" in analysis.conclusion
    added, p, detectable = analysis.tables[0].rows[1][6:]
    assert str(added).startswith("+3.35 [")
    assert isinstance(p, float)
    assert isinstance(detectable, float)


def test_the_parts_of_every_bar_add_up_to_its_prompt_tokens() -> None:
    call = CallRecord(
        prompt_tokens=100,
        cached_tokens=64,
        predicted_tokens=64,
        causes={"new": 20, "divergence": 10, "block_rounding": 6},
    )
    made = record("append-only", 0, cached=64).model_copy(update={"calls": (call,)})
    stacked = analyse(ARMS, [made]).figures[0]
    assert sum(stacked.stacks[0].values) == 100


def test_every_arm_but_the_null_differs_from_the_base_in_one_declared_factor() -> None:
    study = PrefixCacheStudy("any")
    for arm in study.arms:
        assert set(arm.factors) <= study.declared
        assert len(arm.factors) <= 1
