from __future__ import annotations

from pathlib import Path

import pytest

from experiments.framework.arms import NULL_REBUILD
from experiments.framework.records import read_records
from experiments.framework.trials import TrialRecord
from experiments.status_bar import StatusBarCostStudy, StatusBarStudy, StatusBarThinkingStudy
from experiments.status_bar.arms import BASE
from experiments.status_bar.cost_analysis import APPEND, NO_BAR, REPLACE
from experiments.status_bar.study import CHOICES
from experiments.workloads import Ask
from tests.conftest import LiveServer
from tests.support.study_run import MODEL, run_against

pytestmark = pytest.mark.live

DECIDING = (BASE, NULL_REBUILD, "append")


@pytest.fixture(scope="module")
def decisions(live_server: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> list[TrialRecord]:
    folder: Path = tmp_path_factory.mktemp("bar") / "run"
    study = StatusBarStudy(MODEL, block_size=live_server.block_size)
    summary = run_against(
        live_server.base_url, study, folder, block_size=live_server.block_size, arms=DECIDING
    )
    assert summary.complete == summary.planned
    return list(read_records(folder))


@pytest.fixture(scope="module")
def costs(live_server: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> list[TrialRecord]:
    folder: Path = tmp_path_factory.mktemp("cost") / "run"
    study = StatusBarCostStudy(MODEL, block_size=live_server.block_size)
    summary = run_against(live_server.base_url, study, folder, block_size=live_server.block_size)
    assert summary.complete == summary.planned
    return list(read_records(folder))


def test_the_server_holds_a_model_to_the_choices_of_every_question(decisions: list[TrialRecord]) -> None:
    for record in decisions:
        for ask, exchange in zip(Ask, record.exchanges, strict=True):
            assert exchange.text in CHOICES[ask]


def test_reuse_is_predicted_over_all_trials_of_a_run_that_shares_its_salt(
    decisions: list[TrialRecord],
) -> None:
    salts = {exchange.request["cache_salt"] for record in decisions for exchange in record.exchanges}
    assert len(salts) == 1
    calls = [call for record in decisions for call in record.calls]
    assert all(call.cached_tokens == call.predicted_tokens for call in calls)
    assert sum(call.cached_tokens == 0 for call in calls) == 1  # the first of all


def test_a_thought_is_free_and_the_answer_behind_it_is_held_to_the_choices(
    live_server: LiveServer, tmp_path: Path
) -> None:
    study = StatusBarThinkingStudy(MODEL, block_size=live_server.block_size)
    study.base["decode.max_tokens_thinking"] = 24
    run_against(
        live_server.base_url,
        study,
        tmp_path / "run",
        block_size=live_server.block_size,
        arms=(BASE, NULL_REBUILD),
    )
    records = list(read_records(tmp_path / "run"))
    assert [record.arm for record in records].count(BASE) == 2
    for record in records:
        thoughts, answers = record.exchanges[::2], record.exchanges[1::2]
        assert record.measures["thinking_tokens"] == sum(thought.output_tokens or 0 for thought in thoughts)
        for ask, thought, answer in zip(Ask, thoughts, answers, strict=True):
            assert answer.text in CHOICES[ask]
            assert "structured_outputs" not in thought.request
            assert thought.text.strip() in str(answer.request["messages"])


def test_replacing_computes_more_and_sends_less(costs: list[TrialRecord]) -> None:
    sums = {
        record.arm: (
            sum(call.prompt_tokens or 0 for call in record.calls),
            sum((call.prompt_tokens or 0) - (call.cached_tokens or 0) for call in record.calls),
        )
        for record in costs
    }
    assert sums[REPLACE][0] < sums[APPEND][0]
    assert sums[REPLACE][1] > sums[APPEND][1]
    assert sums[NO_BAR][0] < sums[REPLACE][0]
    for record in costs:
        assert all(call.cached_tokens == call.predicted_tokens for call in record.calls)
