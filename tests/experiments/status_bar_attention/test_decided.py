"""The joined study from end to end, on a model of two random layers: what is measured is not what is tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.framework import InequalityError, TrialRecord, run_study
from experiments.framework.arms import resolve
from experiments.framework.local_model import load_model
from experiments.framework.records import read_records
from experiments.status_bar.asking import Treatment
from experiments.status_bar.study import OTHER_STEPS, StatusBarStudy
from experiments.status_bar_attention import StatusBarDecidedStudy
from experiments.status_bar_attention.decided import ARMS, SEEDS
from experiments.status_bar_attention.decided import StatusBarDecidedStudy as Decided
from experiments.workloads import AnswerForm, Ask, LimitPlace, phone_limit
from serving.assembler import Packet, assemble
from serving.chat import ChatRenderer
from tests.support.tiny_weights import write_tiny_weights


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_weights(tmp_path_factory.mktemp("decided") / "tiny").path


@pytest.fixture(scope="module")
def records(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[TrialRecord]:
    study = StatusBarDecidedStudy(str(model))
    folder = tmp_path_factory.mktemp("run") / "run"
    assert run_study(study, study.sizes[0], folder=folder, serve=load_model()).unfinished == 0
    return list(read_records(folder))


def test_every_prompt_is_that_of_the_study_that_asks(model: Path, records: list[TrialRecord]) -> None:
    renderer = ChatRenderer(model)
    asked = StatusBarStudy("any")
    arms = {arm.name: arm for arm in asked.arms}
    assert {record.arm for record in records} == {arm.name for arm in ARMS}
    for record in records:
        treatment = Treatment.of(resolve(asked.base, arms[record.arm]))
        scenario = phone_limit(
            record.seed,
            calls=2,
            other_steps=OTHER_STEPS,
            ask=Ask.DECISION,
            form=AnswerForm.WORD,
            told_in=LimitPlace.TASK,
        )
        request = treatment.request(
            scenario,
            lambda text: len(renderer.tokenizer.encode(text).ids),
            window=4096,
            max_output=8,
            run_id="run",
            surface="served",
        )
        packet = assemble(request, treatment.policy, renderer)
        assert isinstance(packet, Packet)
        ids = renderer.render(packet.messages, packet.tools, packet.spans).token_ids
        assert record.exchanges[0].prompt_token_ids == ids


def test_bars_and_records_are_looked_at_and_a_missing_bar_is_not(records: list[TrialRecord]) -> None:
    for record in records:
        assert ("decision bar" in record.measures) == (record.arm != "no-bar")
        mass = record.measures["decision records"]
        assert isinstance(mass, float)
        assert 0 < mass < 1


def test_a_rebuilt_prompt_that_looks_elsewhere_is_a_broken_equality(records: list[TrialRecord]) -> None:
    one = {record.arm: record for record in records if record.seed == 0}
    study = Decided("tiny")
    base, null = one["count-and-verdict"], one["null-rebuild"]
    study.verify([base, null])
    changed = null.model_copy(update={"measures": {**null.measures, "decision bar": 0.5}})
    with pytest.raises(InequalityError, match="rebuilt"):
        study.verify([base, changed])


def test_every_seed_is_one_that_the_other_study_asks_too() -> None:
    asked = StatusBarStudy("any")
    reference = next(size for size in asked.sizes if size.name == "reference")
    theirs = {(spec.task, spec.seed) for spec in asked.plan(reference)}
    own = next(size for size in Decided("any").sizes if size.name == "reference")
    assert {(spec.task, spec.seed) for spec in Decided("any").plan(own)} <= theirs
    assert sum(SEEDS["reference"].values()) >= 16
