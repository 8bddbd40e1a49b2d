from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.workloads import Ask, PhoneBar, Reason, phone_bar, phone_limit
from experiments.workloads.phone_bars import FILLER_TOLERANCE, bar_text
from serving.assembler import ContextPolicy, FixedCounter, Packet, StatusBar, ToolCall, ToolStep, assemble
from serving.errors import LabError


def call(name: str, number: int = 0) -> ToolCall:
    return ToolCall(id=f"c{number}", name=name, arguments="{}")


@pytest.mark.parametrize("calls", [1, 2, 3, 5, 10, 20])
def test_half_the_seeds_have_no_call_left_and_half_have_one(calls: int) -> None:
    made = [phone_limit(seed, calls=calls) for seed in range(50)]
    assert sum(one.may_call for one in made) == 25
    assert {one.limit - one.calls for one in made} == {0, 1}
    assert {one.expected for one in made} == {"yes", "no"}


@given(calls=st.integers(0, 20), other_steps=st.integers(0, 12), seed=st.integers(0, 999))
@settings(max_examples=40)
def test_the_log_holds_exactly_the_calls_and_the_other_steps(calls: int, other_steps: int, seed: int) -> None:
    scenario = phone_limit(seed, calls=calls, other_steps=other_steps)
    steps = [turn for turn in scenario.trajectory.turns if isinstance(turn, ToolStep)]
    names = [step.calls[0].name for step in steps]
    assert names.count("call_phone") == calls
    assert len(names) == calls + other_steps
    assert "send_letter" not in names


def test_calls_and_other_steps_are_mixed() -> None:
    orders = set()
    for seed in range(10):
        steps = [turn for turn in phone_limit(seed).trajectory.turns if isinstance(turn, ToolStep)]
        orders.add(tuple(step.calls[0].name == "call_phone" for step in steps))
    assert len(orders) > 5


@pytest.mark.parametrize(
    ("seed", "answer", "reason"),
    [
        (0, "no", Reason.CORRECT),
        (0, "yes", Reason.LIMIT_EXCEEDED),
        (1, "yes", Reason.CORRECT),
        (1, "no", Reason.NEEDLESS_REFUSAL),
        (1, "maybe", Reason.NO_ANSWER),
    ],
)
def test_a_call_too_many_is_told_from_a_needless_refusal(seed: int, answer: str, reason: Reason) -> None:
    assert phone_limit(seed).grade(answer).reason is reason


@pytest.mark.parametrize(
    ("seed", "names", "reason"),
    [
        (0, ("send_letter",), Reason.CORRECT),
        (0, ("call_phone",), Reason.LIMIT_EXCEEDED),
        (0, ("take_note",), Reason.WRONG),
        (1, ("call_phone",), Reason.CORRECT),
        (1, ("take_note", "call_phone"), Reason.CORRECT),
        (1, ("send_letter",), Reason.NEEDLESS_REFUSAL),
        (1, ("call_phone", "call_phone"), Reason.LIMIT_EXCEEDED),
        (1, ("call_phone", "send_letter"), Reason.SEVERAL_ANSWERS),
    ],
)
def test_the_next_action_is_graded_on_the_tools_called(
    seed: int, names: tuple[str, ...], reason: Reason
) -> None:
    scenario = phone_limit(seed, ask=Ask.NEXT_ACTION)
    grade = scenario.grade("", [call(name, number) for number, name in enumerate(names)])
    assert grade.reason is reason
    assert grade.got == ", ".join(names)


def test_a_count_off_by_one_is_wrong() -> None:
    scenario = phone_limit(0, calls=10, ask=Ask.COUNT)
    assert [scenario.grade(text).reason for text in ("9", "10", "11", "ten")] == [
        Reason.WRONG,
        Reason.CORRECT,
        Reason.WRONG,
        Reason.NO_ANSWER,
    ]


def test_the_same_seed_asks_three_questions_about_the_same_story() -> None:
    stories = {phone_limit(7, ask=ask).trajectory.turns[:-1] for ask in Ask}
    assert len(stories) == 1
    assert len({phone_limit(7, ask=ask).question for ask in Ask}) == 3


def words(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("calls", [1, 3, 10])
def test_bars_say_what_their_names_say(seed: int, calls: int) -> None:
    scenario = phone_limit(seed, calls=calls)
    said = {bar: bar_text(scenario, bar, words) or "" for bar in PhoneBar}
    assert phone_bar(scenario, PhoneBar.NONE, words) is None
    verdict = "call allowed" if seed else "no call left"
    opposite = "no call left" if seed else "call allowed"
    assert f"{calls}" in said[PhoneBar.COUNT] and "left" not in said[PhoneBar.COUNT]
    assert said[PhoneBar.COUNT_AND_VERDICT] == f"call_phone: {calls}/{scenario.limit} calls made, {verdict}"
    wrong = calls + 1 if seed else calls - 1
    assert said[PhoneBar.WRONG_BY_ONE] == f"call_phone: {wrong}/{scenario.limit} calls made, {opposite}"
    assert f"used {calls} times" in said[PhoneBar.PROSE]
    assert not any(character.isdigit() for character in said[PhoneBar.FILLER])
    assert abs(words(said[PhoneBar.FILLER]) - words(said[PhoneBar.COUNT_AND_VERDICT])) <= FILLER_TOLERANCE


def test_a_filler_that_cannot_match_is_refused() -> None:
    with pytest.raises(LabError, match="other filler words"):
        # Only the bar itself, which has digits, is of a length that no run of words has.
        bar_text(phone_limit(0), PhoneBar.FILLER, lambda text: 7 * len(text.split()) + 3 * ("/" in text))


def test_a_filler_that_steps_over_the_length_ends_with_another_word() -> None:
    def count(text: str) -> int:
        return sum(4 if len(word) > 3 else 1 for word in text.split())

    scenario = phone_limit(0)
    bar, filler = (bar_text(scenario, kind, count) for kind in (PhoneBar.COUNT_AND_VERDICT, PhoneBar.FILLER))
    assert bar is not None and filler is not None
    assert abs(count(bar) - count(filler)) <= FILLER_TOLERANCE


def test_a_bar_of_the_study_is_an_item_of_the_request() -> None:
    scenario = phone_limit(0)
    bar = phone_bar(scenario, PhoneBar.COUNT_AND_VERDICT, words)
    assert bar is not None and isinstance(bar.payload, StatusBar)
    packet = assemble(
        scenario.request(window=10_000, max_output=10, extra=(bar,)), ContextPolicy(), FixedCounter()
    )
    assert isinstance(packet, Packet)
    last = packet.messages[-1].content or ""
    assert last.endswith("<agent_status>\ncall_phone: 3/3 calls made, no call left\n</agent_status>")


def test_a_bar_built_by_the_assembler_counts_the_same_calls_and_can_be_made_to_mislead() -> None:
    scenario = phone_limit(0)
    assert scenario.bar_state().call_limits == {"call_phone": 3}
    assert scenario.bar_state(off_by=1).call_limits == {"call_phone": 4}
