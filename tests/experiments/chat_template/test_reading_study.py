from __future__ import annotations

from pathlib import Path

import pytest

from experiments.chat_template import ChatTemplateReadingStudy
from experiments.chat_template.names import LATE_SYSTEM, SWAPPED, TEXT, TOOL_ROLE, USER_ROLE
from experiments.chat_template.reading import Reading, reading_task
from experiments.framework import InfrastructureError, TrialContext, TrialOutcome, TrialSpec
from experiments.framework.arms import NULL_REBUILD, resolve
from experiments.framework.served_model import ServedModel
from experiments.framework.study import check_study, size_named
from experiments.tool_calling.names import REFUSED
from serving.assembler import ToolStep
from serving.client import ChatRequest, ErrorKind, ExchangeError, Request
from serving.models import ModelFolder
from tests.support.caching_client import CachingClient
from tests.support.made_record import made_record
from tests.support.scripted_client import ScriptedStream
from tests.support.tiny_model import write_tiny_folder

BLOCK = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_folder(tmp_path_factory.mktemp("model"), "qwen2_5")


def run(folder: Path, kind: Reading, arm: str, answer: str) -> tuple[TrialOutcome, CachingClient]:
    study = ChatTemplateReadingStudy("qwen2.5-coder-0.5b", block_size=BLOCK)
    client = CachingClient(folder, BLOCK, [answer])
    model = ModelFolder.model_construct(name="tiny", path=folder, reasoning_parser=None, tool_parser="hermes")
    target = ServedModel(client, model, BLOCK, 10_000, 9_000)  # type: ignore[arg-type]
    chosen = next(one for one in study.arms if one.name == arm)
    context = TrialContext(chosen, resolve(study.base, chosen), target, "s", 1)
    return study.run_trial(TrialSpec(task=kind.value, seed=0), context), client


@pytest.mark.parametrize("kind", Reading)
def test_a_task_holds_the_right_result_once_and_two_others(kind: Reading) -> None:
    places = set()
    for seed in range(24):
        task = reading_task(kind, seed, thinking=False)
        assert len(set(task.choices)) == 3
        assert task.right in task.choices
        results = [
            result.content
            for turn in task.story.turns
            if isinstance(turn, ToolStep)
            for result in turn.results
        ]
        assert sum(task.right in result for result in results) >= 1
        places.add(task.choices.index(task.right))
    assert places == {0, 1, 2}  # a model that always takes the first answer is right by chance alone
    assert reading_task(kind, 3, thinking=False) == reading_task(kind, 3, thinking=False)


def test_bare_numbers_look_alike() -> None:
    for seed in range(24):
        choices = reading_task(Reading.CALCULATIONS, seed, thinking=False).choices
        assert len({(len(text), text[0], text[-1]) for text in choices}) == 1


def test_the_result_that_is_asked_for_moves_when_results_are_swapped() -> None:
    for seed in range(12):
        task = reading_task(Reading.CALCULATIONS, seed, thinking=False)
        [step] = [turn for turn in task.story.turns if isinstance(turn, ToolStep)]
        contents = [result.content for result in step.results]
        assert contents.index(task.right) in (0, 2)


@pytest.mark.parametrize("arm", [TOOL_ROLE, USER_ROLE, TEXT, LATE_SYSTEM])
def test_the_answer_is_one_of_three_and_is_graded(arm: str, folder: Path) -> None:
    task = reading_task(Reading.CALCULATIONS, 0, thinking=False)
    wrong = next(choice for choice in task.choices if choice != task.right)
    right, client = run(folder, Reading.CALCULATIONS, arm, task.right)
    assert right.succeeded and right.measures["success"] is True and right.measures["ids_equal"] == 1
    [request] = client.requests
    assert isinstance(request, ChatRequest)
    assert request.extra == {"structured_outputs": {"choice": list(task.choices)}}
    other, _ = run(folder, Reading.CALCULATIONS, arm, wrong)
    assert (other.succeeded, other.measures["allowed"]) == (False, True)
    free, _ = run(folder, Reading.CALCULATIONS, arm, "I do not know.")
    assert (free.measures["success"], free.measures["allowed"]) == (False, False)
    assert free.measures["fixed_lost_tokens"] == right.measures["fixed_lost_tokens"]


def test_what_the_server_refuses_is_a_finding_and_what_breaks_is_the_machinerys(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = CachingClient.stream
    status = 400

    def failing(self: CachingClient, request: Request, *, manifest_id: str | None = None) -> ScriptedStream:
        made = stream(self, request, manifest_id=manifest_id)
        error = ExchangeError(kind=ErrorKind.HTTP_STATUS, sentence="no such role", status=status)
        made.exchange = made.exchange.model_copy(update={"error": error})
        return made

    monkeypatch.setattr(CachingClient, "stream", failing)
    outcome, _ = run(folder, Reading.CHAIN, USER_ROLE, "1")
    assert (outcome.succeeded, outcome.measures[REFUSED]) == (False, "no such role")
    status = 500
    with pytest.raises(InfrastructureError):
        run(folder, Reading.CHAIN, USER_ROLE, "1")


def test_the_null_arm_sends_the_same_ids(folder: Path) -> None:
    one, _ = run(folder, Reading.WEATHERS, TOOL_ROLE, "1")
    other, _ = run(folder, Reading.WEATHERS, NULL_REBUILD, "1")
    assert one.exchanges[0].prompt_token_ids == other.exchanges[0].prompt_token_ids
    ChatTemplateReadingStudy("qwen2.5-coder-0.5b").verify(
        made_record("chat-template-reading", arm, "weathers", 0, made.measures).model_copy(
            update={"exchanges": made.exchanges}
        )
        for arm, made in ((TOOL_ROLE, one), (NULL_REBUILD, other))
    )


@pytest.mark.parametrize("model", ["qwen3-4b", "qwen2.5-coder-0.5b"])
def test_every_arm_is_planned_where_it_has_a_meaning(model: str) -> None:
    study = ChatTemplateReadingStudy(model)
    check_study(study, study.arms)
    plan = study.plan(size_named(study.sizes, "reference"))
    trials = {arm.name: sum(study.applies(arm, spec) for spec in plan) for arm in study.arms}
    assert (trials[TOOL_ROLE], trials[SWAPPED], trials[NULL_REBUILD]) == (72, 48, 15)
    assert sum(trials.values()) <= 440
    assert study.base["render.thinking"] is (False if model == "qwen3-4b" else None)


def test_the_table_says_what_a_guess_is_worth(folder: Path) -> None:
    made, _ = run(folder, Reading.CHAIN, TOOL_ROLE, "1")
    found = ChatTemplateReadingStudy("qwen2.5-coder-0.5b").analyse(
        [made_record("chat-template-reading", TOOL_ROLE, "chain", 0, made.measures)]
    )
    assert "A guess is right once in 3." in found.tables[0].note
    assert found.tables[0].columns == ("arm", "prompts", "right [95 %]", "an allowed answer [95 %]")
    tokens = next(table for table in found.tables if table.title == "Prefix kept and tokens lost")
    assert tokens.columns == ("arm", "lost, right turn, % [95 %]", "against the base, points [95 %]")
