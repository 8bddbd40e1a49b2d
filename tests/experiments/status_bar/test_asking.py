from __future__ import annotations

from pathlib import Path

import pytest

from experiments.framework.arms import NULL_REBUILD, Arm, resolve
from experiments.status_bar.arms import ARMS, BASE, NO_BAR
from experiments.status_bar.asking import Treatment
from experiments.status_bar.study import (
    CALLS,
    CHOICES,
    HIGHEST_COUNT,
    SEEDS,
    StatusBarStudy,
    StatusBarThinkingStudy,
)
from experiments.workloads import AnswerForm, Ask, LimitPlace, PhoneLimit, phone_limit
from serving.assembler import Packet, assemble
from serving.chat import ChatRenderer
from tests.support.tiny_weights import write_tiny_weights

STUDY = StatusBarStudy("tiny")
SIDES = {arm.name: arm for arm in ARMS}


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> ChatRenderer:
    folder: Path = write_tiny_weights(tmp_path_factory.mktemp("tiny")).path
    return ChatRenderer(folder)


def scenario(seed: int = 0, *, calls: int = 3, ask: Ask = Ask.DECISION) -> PhoneLimit:
    return phone_limit(
        seed, calls=calls, other_steps=2, ask=ask, form=AnswerForm.WORD, told_in=LimitPlace.TASK
    )


def packet(arm: Arm, renderer: ChatRenderer, asked: PhoneLimit) -> Packet:
    treatment = Treatment.of(resolve(STUDY.base, arm))
    request = treatment.request(
        asked,
        lambda text: len(text.split()),
        window=4096,
        max_output=8,
        run_id="run",
        surface="tiny/chat",
    )
    made = assemble(request, treatment.policy, renderer)
    assert isinstance(made, Packet)
    return made


def text(arm: str, renderer: ChatRenderer, asked: PhoneLimit | None = None) -> str:
    made = packet(SIDES[arm], renderer, asked or scenario())
    ids = renderer.render(made.messages, made.tools, made.spans).token_ids
    return renderer.tokenizer.decode(ids)


@pytest.mark.parametrize("arm", [name for name in SIDES if name != NO_BAR])
def test_every_arm_but_one_shows_a_bar_and_only_append_more_than_one(
    arm: str, renderer: ChatRenderer
) -> None:
    shown = text(arm, renderer).count("<agent_status>")
    assert shown == (5 if arm == "append" else 1)


def test_without_a_bar_nothing_says_what_the_log_leaves_to_be_counted(renderer: ChatRenderer) -> None:
    shown = text(NO_BAR, renderer)
    assert "<agent_status>" not in shown
    assert "3 of 3" not in shown


def test_a_bar_stands_before_the_question_unless_its_arm_says_otherwise(renderer: ChatRenderer) -> None:
    question = scenario().question
    for arm in SIDES:
        shown = text(arm, renderer)
        if arm == NO_BAR:
            continue
        last, first_step = shown.rindex("</agent_status>"), shown.index("I try the phone.")
        if arm == "after-question":
            assert last > shown.index(question)
        elif arm == "system-prompt":
            assert last < first_step
        else:
            assert first_step < last < shown.index(question)


def test_the_carriers_put_the_same_words_into_different_messages(renderer: ChatRenderer) -> None:
    bars = {arm: text(arm, renderer) for arm in (BASE, "in-tool-result", "as-tool-response")}
    assert len(set(bars.values())) >= 2
    assert {bar.count("3 of 3 calls used, another call allowed: no") for bar in bars.values()} == {1}


def test_the_null_arm_rebuilds_the_bytes_of_the_base(renderer: ChatRenderer) -> None:
    for ask in Ask:
        for seed in range(4):
            asked = scenario(seed, ask=ask)
            assert text(NULL_REBUILD, renderer, asked) == text(BASE, renderer, asked)


def test_old_copies_tell_the_counts_of_their_time(renderer: ChatRenderer) -> None:
    shown = text("append", renderer, scenario(1, calls=3))
    counts = [int(part.split(" of ")[0]) for part in shown.split("call_phone: ")[1:] if " calls used" in part]
    assert counts == sorted(counts)
    assert counts[-1] == 3


def test_questions_of_one_scenario_share_everything_up_to_the_question(renderer: ChatRenderer) -> None:
    texts = [text(BASE, renderer, scenario(ask=ask)) for ask in Ask]
    end = texts[0].index(scenario().question)
    assert len({one[:end] for one in texts}) == 1


def test_an_answer_after_thinking_is_asked_for_behind_the_thought_and_the_bar_stays_where_it_was(
    renderer: ChatRenderer,
) -> None:
    first = phone_limit(0, ask=Ask.DECISION, form=AnswerForm.THINK, told_in=LimitPlace.TASK)
    second = first.thought("Three calls were made, and three are allowed.")
    assert second.question.startswith("So: ")
    assert second.question.endswith("Answer with yes or no only.")
    assert first.name in phone_limit(0, ask=Ask.NEXT_ACTION).thought("Hm.").question
    before = text(BASE, renderer, first).removesuffix("<|im_start|>assistant\n")
    after = text(BASE, renderer, second)
    assert after.startswith(before)
    assert "Three calls were made" in after.removeprefix(before)


def test_scenarios_share_system_prompt_and_tools(renderer: ChatRenderer) -> None:
    heads = {text(BASE, renderer, scenario(seed)).partition("<|im_end|>")[0] for seed in range(6)}
    assert len(heads) == 1


def test_every_count_can_be_chosen_and_so_can_a_wrong_one() -> None:
    assert max(CALLS) + 1 < HIGHEST_COUNT
    for calls in CALLS:
        assert str(calls) in CHOICES[Ask.COUNT]


@pytest.mark.parametrize("study", [STUDY, StatusBarThinkingStudy("tiny")], ids=lambda study: study.name)
def test_half_of_the_scenarios_of_every_size_have_a_call_left(study: StatusBarStudy) -> None:
    for size in study.sizes:
        plan = study.plan(size)
        assert len(plan) == sum(study.seeds[size.name].values()) * size.repeats
        for calls in study.seeds[size.name]:
            own = [spec for spec in plan if spec.task.endswith(f"-{calls}")]
            assert sum(phone_limit(spec.seed, calls=calls).may_call for spec in own) * 2 == len(own)


def test_the_reference_size_has_fifty_scenarios_an_arm() -> None:
    assert sum(SEEDS["reference"].values()) >= 50
    assert set(SEEDS["reference"]) == set(CALLS)
