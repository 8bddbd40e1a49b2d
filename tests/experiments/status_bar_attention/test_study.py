"""The study from end to end, on a model of two random layers: what is measured is not what is tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.framework import InequalityError, TrialRecord, publish, run_study
from experiments.framework.local_model import load_model
from experiments.framework.records import read_records
from experiments.status_bar_attention import ARMS, StatusBarAttentionStudy
from tests.support.tiny_weights import write_tiny_weights


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished quick run."""
    root = tmp_path_factory.mktemp("bar")
    study = StatusBarAttentionStudy(str(write_tiny_weights(root / "tiny").path))
    summary = run_study(study, study.sizes[0], folder=root / "run", serve=load_model())
    assert summary.unfinished == 0
    return root / "run"


@pytest.fixture(scope="module")
def records(folder: Path) -> list[TrialRecord]:
    return list(read_records(folder))


def of(records: list[TrialRecord], arm: str) -> TrialRecord:
    return next(record for record in records if record.arm == arm and record.seed == 0)


def test_every_arm_has_its_bar_and_no_bar_has_none(records: list[TrialRecord]) -> None:
    assert {record.arm for record in records} == {arm.name for arm in ARMS}
    for record in records:
        assert ("decision bar" in record.measures) == (record.arm != "no-bar")
        mass = record.measures["decision records"]
        assert isinstance(mass, float)
        assert 0 < mass < 1


def test_the_filler_is_as_long_as_the_bar(records: list[TrialRecord]) -> None:
    long, filler = (of(records, arm).measures["tokens bar"] for arm in ("count-and-verdict", "filler"))
    assert isinstance(long, int)
    assert isinstance(filler, int)
    assert abs(long - filler) <= 1


def test_the_arms_differ_in_their_bar_and_nothing_else(records: list[TrialRecord]) -> None:
    texts = {
        arm: json.dumps(of(records, arm).exchanges[0].request["messages"])
        for arm in ("no-bar", "prose", "filler")
    }
    for arm in ("prose", "filler"):
        bare, _, _ = texts[arm].partition("\\n\\n<agent_status>")
        assert texts["no-bar"].startswith(bare)


def test_the_call_records_are_the_phones_steps_and_not_the_others(records: list[TrialRecord]) -> None:
    measures = of(records, "no-bar").measures
    assert isinstance(measures["tokens records"], int)
    assert isinstance(measures["tokens others"], int)
    assert measures["tokens records"] > 0
    assert measures["tokens others"] > 0


def test_a_rebuilt_context_that_looks_elsewhere_is_a_broken_equality(records: list[TrialRecord]) -> None:
    base, null = of(records, "count-and-verdict"), of(records, "null-rebuild")
    changed = null.model_copy(update={"measures": {**null.measures, "decision bar": 0.5}})
    study = StatusBarAttentionStudy("tiny")
    study.verify([base, null])
    with pytest.raises(InequalityError, match="rebuilt"):
        study.verify([base, changed])


def test_the_report_says_what_two_clusters_cannot_tell(folder: Path) -> None:
    model = json.loads((folder / "run.json").read_text())["identity"]["base"]["engine.model"]
    page = publish(StatusBarAttentionStudy(model), folder).read_text(encoding="utf-8")
    assert "Words and place cannot be told apart with fewer than 5 clusters." in page
    assert "times what a token of the call records gets" in page
    assert (folder / "figures" / "attention-per-token.png").is_file()
