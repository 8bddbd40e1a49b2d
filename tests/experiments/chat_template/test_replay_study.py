"""Whole replays against a server with a cache of its own: real templates, real tools, exact tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.chat_template import ChatTemplateReplayStudy
from experiments.chat_template import replay_study as study_module
from experiments.chat_template.arms import FAMILIES
from experiments.chat_template.conversation import FOLLOW_UP, conversation
from experiments.chat_template.names import (
    DROPPED,
    ECHOED,
    IDS_KEPT,
    LATE_SYSTEM,
    SWAPPED,
    TEXT,
    THINKING_OFF,
    TOOL_ROLE,
    USER_ROLE,
)
from experiments.chat_template.replaying import Scripted, foresee
from experiments.chat_template.ways import Way
from experiments.framework import TrialContext, TrialOutcome, TrialSpec
from experiments.framework.arms import NULL_REBUILD, resolve
from experiments.framework.served_model import ServedModel
from experiments.framework.study import check_study
from experiments.tool_calling.names import REFUSED
from serving.assembler import AssistantTurn, ToolStep, UserTurn
from serving.chat import ChatTokenizer
from serving.errors import InequalityError, LabError
from serving.models import ModelFolder
from serving.models.template_collection import TemplateCollection
from tests.support.caching_client import CachingClient
from tests.support.tiny_model import TEMPLATES, write_tiny_folder

BLOCK = 16
MODELS = {"qwen3": "qwen3-nano-shape", "qwen2_5": "qwen2.5-coder-0.5b"}
"""Templates, and the catalogue's model whose arms they have."""

Run = Callable[[str, str], TrialOutcome]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: write_tiny_folder(tmp_path_factory.mktemp(name), name) for name in MODELS}


def target_of(folder: Path, **client: bool) -> ServedModel:
    model = ModelFolder.model_construct(name="tiny", path=folder, reasoning_parser=None, tool_parser="hermes")
    return ServedModel(CachingClient(folder, BLOCK, **client), model, BLOCK, 10_000, 20_000)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def run(folders: dict[str, Path]) -> Run:
    """The outcome of an arm over a template, run once."""
    done: dict[tuple[str, str], TrialOutcome] = {}
    targets = {name: target_of(folder) for name, folder in folders.items()}

    def outcome(template: str, name: str) -> TrialOutcome:
        if (template, name) not in done:
            done[template, name] = replayed(
                ChatTemplateReplayStudy(MODELS[template]), name, targets[template]
            )
        return done[template, name]

    return outcome


def replayed(study: ChatTemplateReplayStudy, name: str, target: ServedModel) -> TrialOutcome:
    arm = next(one for one in study.arms if one.name == name)
    context = TrialContext(arm, resolve(study.base, arm), target, f"salt-{name}", 1)
    return study.run_trial(TrialSpec(task="task-0", seed=0), context)


@pytest.mark.parametrize("name", [TOOL_ROLE, USER_ROLE, TEXT, SWAPPED, LATE_SYSTEM, IDS_KEPT])
def test_every_request_reuses_what_was_predicted_and_the_causes_sum(name: str, run: Run) -> None:
    for template in MODELS:
        outcome = run(template, name)
        assert outcome.measures["model_calls"] == 6
        assert outcome.measures["answers_known"] == 5
        assert len(outcome.calls) == len(outcome.exchanges) == 11
        for call in outcome.calls:
            assert call.cached_tokens == call.predicted_tokens
            assert call.prompt_tokens is not None and call.cached_tokens is not None
            assert sum(call.causes.values()) == call.prompt_tokens - call.cached_tokens


def test_where_the_template_prints_answers_as_they_were_written_nothing_is_lost(run: Run) -> None:
    for name in (TOOL_ROLE, USER_ROLE, SWAPPED, IDS_KEPT):
        measures = run("qwen2_5", name).measures
        assert (measures["lost_tokens"], measures["kept_all"]) == (0, 5)
        assert measures["first_break"] is None


def test_a_new_question_takes_reasoning_out_of_the_history_and_kept_ids_do_not_care(run: Run) -> None:
    plain, kept = run("qwen3", TOOL_ROLE).measures, run("qwen3", IDS_KEPT).measures
    assert plain["kept_all"] == 3  # all but the calls behind a second and a third question
    assert plain["avoidable_reasoning dropped"] == sum_of(plain, "avoidable_") > 0
    assert (kept["lost_tokens"], kept["kept_all"]) == (0, 5)


def test_results_as_the_user_hide_the_reasoning_before_each_of_them(run: Run) -> None:
    assert run("qwen3", USER_ROLE).measures["kept_all"] == 0
    assert run("qwen2_5", USER_ROLE).measures["kept_all"] == 5


def test_echoed_reasoning_keeps_what_dropped_reasoning_loses_in_every_call(run: Run) -> None:
    echoed, dropped = run("qwen3", ECHOED).measures, run("qwen3", DROPPED).measures
    assert echoed["lost_tokens"] == 0
    assert dropped["kept_all"] == 0
    assert number(dropped, "prompt_tokens") < number(echoed, "prompt_tokens")


def test_an_empty_think_block_of_the_generation_prompt_is_lost_again(run: Run) -> None:
    measures = run("qwen3", THINKING_OFF).measures
    assert measures["kept_all"] == 0
    assert number(measures, "lost_tokens") > 0


def test_a_text_never_begins_with_the_answer_that_was_generated(run: Run) -> None:
    measures = run("qwen2_5", TEXT).measures
    assert (measures["kept_all"], measures["kept_prompt"]) == (0, 0)
    assert measures["first_break"] is not None


def test_a_late_system_message_costs_the_tail_of_every_call(run: Run) -> None:
    measures = run("qwen2_5", LATE_SYSTEM).measures
    assert (measures["kept_all"], measures["kept_prompt"]) == (0, 0)
    assert 0 < number(measures, "lost_tokens") < number(run("qwen2_5", TEXT).measures, "twin_tokens")


def test_the_rebuilt_arm_sends_the_same_ids(run: Run) -> None:
    one, other = run("qwen3", TOOL_ROLE), run("qwen3", NULL_REBUILD)
    assert [e.prompt_token_ids for e in one.exchanges] == [e.prompt_token_ids for e in other.exchanges]
    assert [c.cached_tokens for c in one.calls] == [c.cached_tokens for c in other.calls]


@pytest.mark.parametrize("name", [TOOL_ROLE, TEXT, IDS_KEPT, THINKING_OFF])
def test_what_is_foreseen_without_a_server_is_what_the_server_reuses(
    name: str, run: Run, folders: dict[str, Path]
) -> None:
    study = ChatTemplateReplayStudy(MODELS["qwen3"])
    way = Way.of(resolve(study.base, next(arm for arm in study.arms if arm.name == name)))
    script = Scripted(conversation(0, thinking=way.thinking is True), way, 0, 20_000)
    folder = folders["qwen3"]
    sent = foresee(script, folder, ChatTokenizer(folder), block_size=BLOCK)
    measures = run("qwen3", name).measures
    assert sum(one.cached for one in sent) == measures["cached_tokens"]
    assert sum(len(one.prompt) for one in sent) == measures["prompt_tokens"]


def test_a_server_that_reuses_less_than_it_says_stops_the_run(folders: dict[str, Path]) -> None:
    study = ChatTemplateReplayStudy(MODELS["qwen2_5"])
    with pytest.raises(InequalityError, match="Cached tokens"):
        replayed(study, TOOL_ROLE, target_of(folders["qwen2_5"], forgets=True))


def test_a_pool_that_cannot_hold_a_trial_is_refused(folders: dict[str, Path]) -> None:
    target = target_of(folders["qwen2_5"])
    small = ServedModel(target.client, target.folder, BLOCK, 20, target.max_model_len)
    with pytest.raises(LabError, match="the pool has 20"):
        replayed(ChatTemplateReplayStudy(MODELS["qwen2_5"]), TOOL_ROLE, small)


def test_a_template_that_refuses_a_late_system_message_is_a_finding_in_its_own_words(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (TEMPLATES / "qwen3_6.jinja").read_text(encoding="utf-8")
    collection = TemplateCollection(origin="fixtures", sha256="0", sources={"qwen3_6": source})
    monkeypatch.setattr(study_module, "trl_templates", lambda: collection)
    study, target = ChatTemplateReplayStudy(MODELS["qwen3"]), target_of(folders["qwen3"])
    plain, late = (replayed(study, name, target) for name in ("family-qwen3-6", "late-qwen3-6"))
    assert plain.succeeded and REFUSED not in plain.measures
    assert not late.succeeded
    assert "System message must be at the beginning" in str(late.measures[REFUSED])
    assert late.measures["model_calls"] == 0
    with pytest.raises(LabError, match="gptoss"):
        replayed(study, "family-gptoss", target)


def test_a_conversation_has_a_chain_parallel_calls_and_a_last_question() -> None:
    story = conversation(3, thinking=True)
    steps = [turn for turn in story.turns if isinstance(turn, ToolStep)]
    assert [len(step.calls) for step in steps[:2]] == [1, 1]
    assert len(steps[2].calls) > 1
    assert story.calls == 6
    assert isinstance(story.turns[-1], UserTurn) and story.turns[-1].text == FOLLOW_UP
    assert all(turn.reasoning for turn in story.turns if isinstance(turn, ToolStep | AssistantTurn))
    ids = [call.id for step in steps for call in step.calls]
    assert len(set(ids)) == len(ids) and all(len(one) == 9 and one.isalnum() for one in ids)
    assert conversation(3, thinking=True) == story


@pytest.mark.parametrize("model", MODELS.values())
def test_the_arms_of_every_model_are_comparable(model: str) -> None:
    study = ChatTemplateReplayStudy(model)
    check_study(study, study.arms)
    names = {arm.name for arm in study.arms}
    assert ({THINKING_OFF, DROPPED, ECHOED} <= names) is (model == "qwen3-nano-shape")
    families = [
        arm for arm in study.arms if arm.name.startswith(("family-", "late-")) and arm.name != LATE_SYSTEM
    ]
    assert len(families) == 2 * len(FAMILIES)
    assert not any(study.applies(arm, TrialSpec(task="task-0", seed=1)) for arm in families)


def sum_of(measures: object, prefix: str) -> int:
    assert isinstance(measures, dict)
    return sum(value for name, value in measures.items() if name.startswith(prefix))


def number(measures: object, name: str) -> float:
    assert isinstance(measures, dict)
    value = measures[name]
    assert isinstance(value, int | float)
    return value
