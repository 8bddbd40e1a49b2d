from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest

from experiments.attention.analysis import analyse
from experiments.attention.arms import BY_CODE, COUNT, DEPTHS, LOOK_UP, TRACE, depth_name
from experiments.framework import TrialRecord
from experiments.framework.statistics import SEEDS_FOR_INTERVAL
from experiments.framework.trials import CacheState, CacheTemperature, Measure, OutcomeKind
from serving.errors import UsageError


def record(arm: str, seed: int, **measures: Measure) -> TrialRecord:
    return TrialRecord(
        study="attention",
        arm=arm,
        factors={},
        task="long",
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
        cache=CacheState(temperature=CacheTemperature.UNPROVEN, proof=""),
        measures={"by_layer_sink": "[0.5, 0.7]", "by_layer_entropy": "[2, 1]", **measures},
    )


def asked(arm: str, seed: int, *, correct: bool, times: float) -> TrialRecord:
    return record(
        arm,
        seed,
        correct=correct,
        times_even=times,
        mass_share=times / 100,
        best_head_share=times / 10,
        by_layer_mass="[0.1, 0.2]",
    )


def needles(
    seeds: int, missed: float = -1, times_found: float = 4, times_missed: float = 1
) -> Iterator[TrialRecord]:
    """A needle at every depth; the one at depth `missed` is never found."""
    for seed in range(seeds):
        for depth in DEPTHS:
            correct = depth != missed
            yield asked(
                depth_name(depth),
                seed,
                correct=correct,
                times=(times_found if correct else times_missed) + seed / 10,
            )


def test_a_depth_that_is_always_missed_is_named_and_one_chance_is_not() -> None:
    said = analyse(list(needles(12, missed=0.3))).conclusion
    assert "Recall goes from 0% (at 30%) to 100%" in said
    assert "beyond chance (McNemar, Holm): needle-030" in said
    few = analyse(list(needles(SEEDS_FOR_INTERVAL, missed=0.3))).conclusion
    assert "No depth differs from the middle beyond chance" in few


def test_recall_that_is_the_same_everywhere_is_an_honest_null() -> None:
    said = analyse(list(needles(8))).conclusion
    assert "Recall is 100% at every depth." in said
    assert "It is always found" in said
    assert "cannot be compared" in said


def test_attention_goes_with_finding_only_where_the_difference_is_beyond_chance() -> None:
    apart = analyse(list(needles(8, missed=0.3))).conclusion
    assert "4.3 times an even spread where it is found and 1.4 times where it is not" in apart
    assert "not beyond chance" not in apart
    same = [
        asked(r.arm, r.seed, correct=bool(r.measures["correct"]), times=2 + ((r.seed * 7 + n) % 5) / 5)
        for n, r in enumerate(needles(8, missed=0.3))
    ]
    assert "which is not beyond chance" in analyse(same).conclusion


def test_too_few_seeds_tell_nothing() -> None:
    said = analyse(list(needles(2, missed=0.3))).conclusion
    assert "With fewer than 5 seeds no depth can be told from another." in said
    table = analyse(list(needles(2))).tables[0]
    assert "[" not in str(table.rows[0][4]), "no interval over two seeds"


def test_counting_is_held_against_finding() -> None:
    records = [asked(LOOK_UP, seed, correct=True, times=5) for seed in range(6)]
    records += [asked(COUNT, seed, correct=False, times=1) for seed in range(6)]
    records += [asked(BY_CODE, seed, correct=seed > 2, times=9) for seed in range(6)]
    found = analyse(records)
    assert "Cages right: looked up 6 of 6, counted 0 of 6, counted by code 3 of 6" in found.conclusion
    (table,) = found.tables
    assert str(table.rows[0][-1]).startswith("+1.00")
    assert table.rows[1][-1] == ""


def test_a_triangle_is_a_ratio_of_means_over_seeds() -> None:
    rng = np.random.default_rng(0)
    records = [
        record(
            TRACE,
            seed,
            **{"mass answer → itself": 0.3 + 0.01 * float(rng.normal()), "expected answer → itself": 0.1},
        )
        for seed in range(8)
    ]
    found = analyse(records)
    assert "“answer → itself” has 3.04 [" in found.conclusion
    (table,) = found.tables
    assert table.rows[0][0] == "answer → itself"


def test_a_run_without_this_studys_arms_is_refused() -> None:
    with pytest.raises(UsageError, match="No record"):
        analyse([record("append-only", 0)])


def test_figures_show_recall_apart_from_attention() -> None:
    figures = {figure.name: figure for figure in analyse(list(needles(6))).figures}
    assert "accuracy" in figures["recall-by-depth"].title
    assert "not accuracy" in figures["attention-by-depth"].title
    assert json.loads(figures["by-layer-sink"].model_dump_json())["lines"][0]["values"] == pytest.approx(
        [0.5, 0.7]
    )
