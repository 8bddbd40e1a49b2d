"""The study from end to end, on a model of two random layers: what is measured is not what is tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.attention.arms import ARMS, BY_CODE, COUNT, LOOK_UP, MIDDLE, TRACE
from experiments.attention.study import AttentionStudy
from experiments.framework import InequalityError, TrialRecord, publish, run_study
from experiments.framework.arms import NULL_REBUILD
from experiments.framework.local_model import load_model
from experiments.framework.records import read_records
from tests.support.tiny_weights import write_tiny_weights


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished quick run."""
    root = tmp_path_factory.mktemp("attention")
    study = AttentionStudy(str(write_tiny_weights(root / "tiny").path))
    summary = run_study(study, study.sizes[0], folder=root / "run", serve=load_model())
    assert summary.unfinished == 0
    return root / "run"


@pytest.fixture(scope="module")
def records(folder: Path) -> dict[str, TrialRecord]:
    return {record.arm: record for record in read_records(folder)}


def test_every_arm_keeps_its_prompt_its_answer_and_its_mass(records: dict[str, TrialRecord]) -> None:
    assert list(records) != []
    assert set(records) == {arm.name for arm in ARMS}
    for name, record in records.items():
        (exchange,) = record.exchanges
        assert exchange.prompt_token_ids
        assert exchange.output_token_ids
        assert exchange.manifest_id
        if name != TRACE:
            share, best = record.measures["mass_share"], record.measures["best_head_share"]
            assert isinstance(share, float)
            assert isinstance(best, float)
            assert 0 < share <= best <= 1


def test_the_null_arm_reads_and_looks_the_same(records: dict[str, TrialRecord]) -> None:
    for measure in ("mass_share", "by_layer_mass", "sink_share"):
        assert records[NULL_REBUILD].measures[measure] == records[MIDDLE].measures[measure]


def test_a_rebuilt_context_that_looks_elsewhere_is_a_broken_equality(records: dict[str, TrialRecord]) -> None:
    measures = {**records[NULL_REBUILD].measures, "by_layer_mass": "[0.5, 0.5]"}
    changed = records[NULL_REBUILD].model_copy(update={"measures": measures})
    with pytest.raises(InequalityError, match="mass by layer"):
        AttentionStudy("tiny").verify([records[MIDDLE], changed])


def test_the_needle_moves_through_one_text(records: dict[str, TrialRecord]) -> None:
    prompts = [records[name].exchanges[0].prompt_token_ids for name in ("needle-000", "needle-100")]
    assert prompts[0] != prompts[1]
    assert sorted(prompts[0] or ()) == sorted(prompts[1] or ())


def test_the_cages_are_the_same_and_the_question_is_not(records: dict[str, TrialRecord]) -> None:
    messages = {name: records[name].exchanges[0].request["messages"] for name in (LOOK_UP, COUNT, BY_CODE)}
    texts = {name: json.dumps(found) for name, found in messages.items()}
    assert "What colour" in texts[LOOK_UP]
    assert "In how many cages" in texts[COUNT]
    assert "cats: " in texts[BY_CODE]
    assert "cats: " not in texts[COUNT]


def test_the_trace_has_triangles_with_a_baseline(records: dict[str, TrialRecord]) -> None:
    measures = records[TRACE].measures
    names = [name.removeprefix("mass ") for name in measures if name.startswith("mass ")]
    assert "tool results → themselves" in names
    assert "answer → tool results" in names
    for name in names:
        assert measures[f"expected {name}"] is not None


def test_the_report_has_the_map_and_says_that_one_seed_tells_nothing(folder: Path) -> None:
    model = json.loads((folder / "run.json").read_text())["identity"]["base"]["engine.model"]
    page = publish(AttentionStudy(model), folder).read_text(encoding="utf-8")
    assert "With fewer than 5 seeds no depth can be told from another." in page
    for figure in ("map", "recall-by-depth", "attention-by-depth", "by-layer-entropy"):
        assert (folder / "figures" / f"{figure}.png").is_file()
