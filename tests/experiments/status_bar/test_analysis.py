from __future__ import annotations

from collections.abc import Callable

import pytest

from experiments.framework import TrialRecord
from experiments.framework.trials import CallRecord
from experiments.status_bar.analysis import absolute_error, analyse, balanced, slope
from experiments.status_bar.arms import ARMS, BASE, FILLER, NO_BAR, WRONG
from serving.errors import UsageError
from tests.support.made_record import made_record

CALLS = (1, 2, 3, 5, 10, 20)

Answers = Callable[[int, bool], tuple[bool, bool, int]]
"""(N, may call) → decision says yes, next action is the phone, the count."""


def record(arm: str, calls: int, seed: int, answers: Answers, task: str = "word") -> TrialRecord:
    may = seed % 2 == 1
    yes, phone, count = answers(calls, may)
    return made_record(
        "status-bar",
        arm,
        f"{task}-calls-{calls}",
        seed,
        {
            "calls": calls,
            "may_call": may,
            "decision": "yes" if yes else "no",
            "decision_right": yes == may,
            "action": "call_phone" if phone else "send_letter",
            "action_right": phone == may,
            "violation": None if may else phone,
            "count": count,
            "count_right": count == calls,
            "count_error": count - calls,
            "thinking_tokens": 100 + 5 * calls,
        },
        calls=(CallRecord(prompt_tokens=100, cached_tokens=64, predicted_tokens=64, ttft_s=1.0),),
    )


def records(arm: str, answers: Answers, seeds: int = 8, task: str = "word") -> list[TrialRecord]:
    return [record(arm, calls, seed, answers, task) for calls in CALLS for seed in range(seeds)]


def right(calls: int, may: bool) -> tuple[bool, bool, int]:
    return may, may, calls


def always_yes(calls: int, may: bool) -> tuple[bool, bool, int]:
    return True, True, calls // 2


def contrary(calls: int, may: bool) -> tuple[bool, bool, int]:
    return not may, not may, calls + (1 if may else -1)


def test_always_saying_the_same_is_a_balanced_accuracy_of_a_half() -> None:
    found = balanced(records(NO_BAR, always_yes), NO_BAR, "decision")
    assert found is not None
    assert found.estimate == pytest.approx(0.5)
    only_left = [one for one in records(NO_BAR, always_yes) if one.measures["may_call"]]
    assert balanced(only_left, NO_BAR, "decision") is None


def test_an_error_that_grows_by_half_a_call_has_that_slope() -> None:
    def halves(calls: int, may: bool) -> tuple[bool, bool, int]:
        return may, may, calls - round(calls / 2)

    made = [one for one in records(NO_BAR, halves) if one.measures["calls"] in (2, 10, 20)]
    found = slope(made, NO_BAR, absolute_error)
    assert found is not None
    assert found.estimate == pytest.approx(0.5)
    assert slope([one for one in made if one.measures["calls"] == 2], NO_BAR, absolute_error) is None


def test_the_conclusion_follows_the_numbers() -> None:
    helped = [*records(NO_BAR, always_yes), *records(BASE, right), *records(WRONG, contrary)]
    said = analyse(ARMS, helped).conclusion
    assert "0.50 without a bar (always 'yes')" in said or "without a bar (always 'yes')" in said
    assert "more answers are right" in said
    assert "24 of 24 without a bar, 0 of 24 with it" in said
    assert "followed in 48 of 48 decisions and, to the number, in 48 counts" in said
    useless = [*records(NO_BAR, always_yes), *records(BASE, always_yes), *records(FILLER, always_yes)]
    said = analyse(ARMS, useless).conclusion
    assert "no change that stands" in said
    assert "24 of 24 without a bar, 24 of 24 with it" in said
    harmful = [*records(NO_BAR, right), *records(BASE, always_yes)]
    assert "fewer answers are right" in analyse(ARMS, harmful).conclusion


def test_thinking_is_told_by_its_length_and_how_it_grows() -> None:
    thought = [*records(NO_BAR, right, task="think"), *records(BASE, right, task="think")]
    tables = {table.title: table for table in analyse(ARMS, thought).tables}
    assert tables["Visible chain of thought"].rows[0][2] == "+5.0 [+5.0, +5.0]"
    assert "Visible chain of thought" not in {
        table.title for table in analyse(ARMS, records(NO_BAR, right)).tables
    }


def test_a_reuse_that_was_not_predicted_shows_in_its_table() -> None:
    made = records(BASE, right)
    call = made[0].calls[0].model_copy(update={"predicted_tokens": 32})
    made[0] = made[0].model_copy(update={"calls": (call,)})
    table = next(table for table in analyse(ARMS, made).tables if "costs" in table.title)
    assert table.rows[0][-1] == "47/48"


def test_records_of_another_study_are_refused() -> None:
    with pytest.raises(UsageError, match="No record is of an arm"):
        analyse(ARMS, [record("elsewhere", 1, 0, right)])
