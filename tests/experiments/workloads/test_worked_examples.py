"""The cats in cages and the three-call phone limit, as they are told: through `assemble`, with and without help."""

from __future__ import annotations

from experiments.workloads import Ask, Scenario, cage_count, phone_limit
from serving.assembler import (
    BarPolicy,
    BarState,
    ContextItem,
    ContextPolicy,
    FixedCounter,
    Packet,
    Technique,
    assemble,
)
from tests.support.solvers import SOLVERS, texts


def packet(
    scenario: Scenario, policy: ContextPolicy, *extra: ContextItem, bar: BarState | None = None
) -> Packet:
    built = assemble(
        scenario.request(window=20_000, max_output=200, extra=extra, bar=bar), policy, FixedCounter()
    )
    assert isinstance(built, Packet)
    return built


def test_ninety_black_and_ten_white_cats_are_all_sent_and_their_number_is_written_nowhere() -> None:
    scenario = cage_count(0, cats=100, counted=10)
    plain = packet(scenario, ContextPolicy())
    assert texts(plain).count(" cat.") == 100
    assert texts(plain).count(f"a {scenario.colour} cat.") == 10
    assert "10" not in texts(plain)
    assert SOLVERS["CageCount"](plain) == "10"


def test_a_count_made_by_code_turns_counting_into_reading_and_costs_nothing_before_it() -> None:
    scenario = cage_count(0, cats=100, counted=10)
    plain, helped = packet(scenario, ContextPolicy()), packet(scenario, ContextPolicy(), scenario.summary())
    assert f"{scenario.colour} cats: 10" in texts(helped)
    assert helped.messages[:-1] == plain.messages[:-1]
    assert (helped.messages[-1].content or "").startswith(plain.messages[-1].content or "")
    assert scenario.grade("Answer: 10").passed
    assert scenario.grade("Answer: 90").detail == "off by +80 of 10"


def test_after_three_of_three_calls_the_bar_says_that_none_is_left_and_a_fourth_breaks_the_limit() -> None:
    scenario = phone_limit(0, calls=3, limit=3, ask=Ask.NEXT_ACTION)
    bar = BarPolicy(techniques=frozenset({Technique.CALL_COUNTERS}))
    policy = ContextPolicy(status_bar=bar)
    built = packet(scenario, policy, bar=scenario.bar_state())
    status = (built.messages[-1].content or "").partition("<agent_status>\n")[2]
    assert 'calls of "call_phone": 3/3 (none left)' in status.splitlines()
    assert SOLVERS["PhoneLimit"](built) == "send_letter"
    assert scenario.grade("send_letter").passed
    assert scenario.grade("call_phone").reason == "limit_exceeded"


def test_with_a_fourth_call_allowed_the_same_story_ends_the_other_way() -> None:
    three, four = (phone_limit(0, calls=3, limit=limit) for limit in (3, 4))
    assert three.trajectory.turns == four.trajectory.turns
    assert (three.expected, four.expected) == ("no", "yes")
    bar = BarPolicy(techniques=frozenset({Technique.CALL_COUNTERS}))
    shown = texts(packet(four, ContextPolicy(status_bar=bar), bar=four.bar_state()))
    assert 'calls of "call_phone": 3/4' in shown and "none left" not in shown
