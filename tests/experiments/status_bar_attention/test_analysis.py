from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from experiments.framework import CallRecord, TrialRecord
from experiments.framework.trials import CacheState, CacheTemperature, OutcomeKind
from experiments.status_bar_attention import ARMS
from experiments.status_bar_attention.analysis import analyse, density
from serving.errors import UsageError

PROMPT = 201


def record(
    arm: str, seed: int, *, bar: float | None, records: float, sink: float = 0.5, correct: bool = True
) -> TrialRecord:
    """Masses are given per token, as multiples of an even spread beside the sink."""

    def share(times: float, tokens: int) -> float:
        return times * tokens * (1 - sink) / (PROMPT - 1)

    measures = {
        "correct": correct,
        "said_right": correct,
        "margin": 0.5,
        "decision sink": sink,
        "tokens records": 20,
        "decision records": share(records, 20),
        "generated sink": None,
    }
    if bar is not None:
        measures |= {"tokens bar": 10, "decision bar": share(bar, 10), "by_layer bar": "[0.1, 0.3]"}
    return TrialRecord(
        study="status-bar-attention",
        arm=arm,
        factors={},
        task="calls-2-steps-2",
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
        measures=measures,
        calls=(CallRecord(prompt_tokens=PROMPT),),
    )


def run(seeds: int, *, filler: float, beside: float = 1.0, noise: float = 0.05) -> list[TrialRecord]:
    """The bar gets 3, filler `filler`, the records 1 beside the bar and `beside` without it."""
    rng = np.random.default_rng(1)
    made: list[TrialRecord] = []
    for seed in range(seeds):
        jitter = rng.normal(0, noise, 5)
        made += [
            record("count-and-verdict", seed, bar=3 + jitter[0], records=1 + jitter[1]),
            record("filler", seed, bar=filler + jitter[2], records=1 + jitter[3], correct=seed % 2 == 0),
            record("no-bar", seed, bar=None, records=beside + jitter[4], correct=seed % 2 == 0),
        ]
    return made


def said(records: Sequence[TrialRecord]) -> str:
    return analyse(ARMS, records).conclusion


def test_the_density_is_per_token_and_without_the_sink() -> None:
    for sink in (0.1, 0.9):
        found = density([record("no-bar", 0, bar=None, records=2.5, sink=sink)], "no-bar", "records")
        assert found["calls-2-steps-2#0"] == [pytest.approx(2.5)]


def test_a_token_of_the_bar_is_held_against_one_of_the_records() -> None:
    assert "a token of the bar gets 3 [" in said(run(8, filler=1))


def test_the_bars_words_are_told_from_its_place_only_beyond_chance() -> None:
    assert "Its words get more than filler at the same place" in said(run(8, filler=1))
    assert "Its words get less than filler" in said(run(8, filler=5))
    assert "no more than filler at the same place beyond chance" in said(run(8, filler=3.0, noise=0.2))


def test_records_that_lose_attention_to_the_bar_are_named_and_others_are_not() -> None:
    assert "the call records lose 1 times an even spread" in said(run(8, filler=1, beside=2))
    assert "the same with and without the bar" in said(run(8, filler=1, beside=1, noise=0.2))


def test_two_clusters_give_a_number_and_no_verdict() -> None:
    few = said(run(2, filler=1))
    assert "a token of the bar gets 3 times" in few
    assert "cannot be told apart with fewer than 5 clusters" in few


def test_decisions_are_compared_with_no_bar_and_adjusted() -> None:
    (table,) = [one for one in analyse(ARMS, run(10, filler=1)).tables if one.title == "May it call again?"]
    rows = {row[0]: row for row in table.rows}
    assert rows["Count and verdict"][2:4] == (10, "1 [0.72, 1]")
    assert str(rows["Count and verdict"][4]).startswith("+0.5")
    assert rows["No bar"][4] is None


def test_arms_that_did_not_run_are_left_out_and_a_stranger_is_refused() -> None:
    assert "Prose" not in said(run(3, filler=1))
    with pytest.raises(UsageError, match="its arms are"):
        analyse(ARMS, [record("append-only", 0, bar=None, records=1)])
