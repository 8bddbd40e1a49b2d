from __future__ import annotations

from collections.abc import Sequence

import pytest

from experiments.framework import CallRecord, TrialRecord
from experiments.framework.arms import NULL_REBUILD
from experiments.framework.statistics import judged_alike
from experiments.framework.trials import Measure, OutcomeKind
from experiments.tool_calling.analysis import analyse
from experiments.tool_calling.cost_tables import analyse_cost
from experiments.tool_calling.names import AUTO, EXCLUDED, NO_ISOLATION, REQUIRED
from experiments.tool_calling.pairs import compare
from experiments.tool_calling.study import ARMS
from serving.errors import UsageError
from tests.support.made_record import made_record


def record(
    arm: str, task: str, seed: int, *, right: bool, native: bool | None = None, calls: Sequence[CallRecord] = (),
    **measures: Measure,
) -> TrialRecord:  # fmt: skip
    given: dict[str, Measure] = {
        "success": right, "exact": right, "right_stop": right, "together": None,
        "native_success": right if native is None else native,
        "first_form": "native", "form_native": 1, "form_fenced": 0, "form_bare": 0, "form_malformed": 0,
        "model_calls": 2, "ids_equal": 2, "expected_calls": 1, "found": int(right), "wrong_calls": int(not right),
        "gave_up": None, "answers_cut": 0, "tools_run": 1, "started_early": 1, "side_by_side": 0,
        "visible_tokens": 0, "reasoning_tokens": None, "output_tokens": 40,
    }  # fmt: skip
    return made_record(
        "tool-calling",
        arm,
        task,
        seed,
        {**given, **measures},
        calls=tuple(calls),
        kind=OutcomeKind.OK if right else OutcomeKind.TASK_FAILED,
    )


def two_arms(auto: Sequence[bool], required: Sequence[bool], task: str = "single") -> list[TrialRecord]:
    return [record(AUTO, task, seed, right=right) for seed, right in enumerate(auto)] + [
        record(REQUIRED, task, seed, right=right) for seed, right in enumerate(required)
    ]


def table(records: Sequence[TrialRecord], title: str) -> list[dict[str, object]]:
    found = next(one for one in analyse(ARMS, records).tables if one.title.startswith(title))
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def test_shares_come_with_their_wilson_intervals_by_class_and_arm() -> None:
    rows = table(two_arms([True] * 3 + [False] * 7, [True] * 10), "Right turns by class")
    assert [(row["class"], row["arm"], row["prompts"]) for row in rows] == [
        ("single", "The model chooses", 10),
        ("single", "First call required", 10),
    ]
    assert rows[0]["right [95 %]"] == "0.30 [0.11, 0.60]"
    assert rows[1]["right [95 %]"] == "1.00 [0.72, 1.00]"
    assert rows[0]["needed calls found"] == "3 of 10"


def test_a_clear_gain_is_said_with_its_size_and_a_clear_loss_as_one() -> None:
    gain = analyse(ARMS, two_arms([False] * 20, [True] * 15 + [False] * 5)).conclusion
    assert "raises the share right by +75 points [+48, +89] with every form read (n 20" in gain
    loss = analyse(ARMS, two_arms([True] * 15 + [False] * 5, [False] * 20)).conclusion
    assert "lowers the share right by -75 points" in loss


def test_no_difference_is_said_honestly_with_what_would_have_been_found() -> None:
    said = analyse(ARMS, two_arms([True, False] * 10, [False, True] + [True, False] * 9)).conclusion
    assert "which is no more than chance" in said
    assert "the run would have found +" in said
    assert "raises" not in said and "lowers" not in said


def test_pairs_are_prompts_and_the_p_value_is_exact_and_adjusted_over_all_rows() -> None:
    records = two_arms([False] * 6, [True] * 6)
    found = {(one.scope, one.reading): one for one in compare(records)}
    assert len(found) == 4  # one class and all of them, read in two ways
    one = found[None, "success"]
    assert (one.right.pairs, one.right.only_first, one.right.only_second) == (6, 0, 6)
    assert one.right.p_value == pytest.approx(2 / 2**6)
    assert one.adjusted == pytest.approx(4 * 2 / 2**6)


def test_a_prompt_of_one_arm_alone_is_no_pair() -> None:
    records = [*two_arms([True], [True]), record(AUTO, "no-tool", 0, right=True)]
    assert all(one.right.pairs == 1 for one in compare(records))
    assert compare([record(AUTO, "single", 0, right=True)]) == ()


def test_a_harness_that_reads_one_form_alone_is_judged_from_the_same_records() -> None:
    records = [
        record(
            AUTO,
            "single",
            seed,
            right=True,
            native=seed < 2,
            form_native=int(seed < 2),
            form_fenced=int(seed >= 2),
        )
        for seed in range(10)
    ]
    said = analyse(ARMS, records).conclusion
    assert "10 of 10 prompts" in said
    assert "2 native, 8 fenced, 0 bare, 0 malformed" in said
    assert "would have got 2 of 10 prompts right" in said


def test_the_null_arm_is_compared_prompt_by_prompt() -> None:
    pairs = ((True, True), (True, False), (False, False))
    records = [
        record(arm, "single", seed, right=right)
        for seed, pair in enumerate(pairs)
        for arm, right in zip((AUTO, NULL_REBUILD), pair, strict=True)
    ]
    assert judged_alike(records, AUTO, NULL_REBUILD) == (2, 3)
    assert "judged the same in 2 of 3 prompts" in analyse(ARMS, records).conclusion


def test_prompts_that_were_not_asked_are_exclusions_and_in_no_share() -> None:
    left_out = record(AUTO, "single", 5, right=False).model_copy(
        update={"measures": {EXCLUDED: NO_ISOLATION}}
    )
    found = analyse(ARMS, [record(AUTO, "single", 0, right=True), left_out])
    assert [(one.reason, one.trials) for one in found.exclusions] == [(NO_ISOLATION, 1)]
    assert "1 of 1 prompts" in found.conclusion
    with pytest.raises(UsageError, match="No record is of an arm"):
        analyse(ARMS, [left_out])


def test_turns_are_told_apart_by_the_form_they_began_in() -> None:
    records = [
        record(AUTO, "single", 0, right=True),
        record(AUTO, "single", 1, right=False, first_form="fenced"),
        record(AUTO, "single", 2, right=False, first_form="none"),
    ]
    rows = table(records, "Right turns by the form")
    assert [(row["first form"], row["prompts"]) for row in rows] == [
        ("native", 1),
        ("fenced", 1),
        ("none", 1),
    ]


def test_unknown_reasoning_stays_unknown_and_known_reasoning_is_summed() -> None:
    rows = table([record(AUTO, "single", 0, right=True)], "How the calls ran")
    assert rows[0]["reasoning tokens"] is None
    records = [record(AUTO, "single", seed, right=True, reasoning_tokens=7) for seed in range(2)]
    assert table(records, "How the calls ran")[0]["reasoning tokens"] == 14


def call(ttft: float, cached: int) -> CallRecord:
    return CallRecord(
        prompt_tokens=100, cached_tokens=cached, predicted_tokens=cached, output_tokens=9, ttft_s=ttft
    )


def cost_records(required_ttft: float) -> list[TrialRecord]:
    return [
        record(
            arm, "single", seed, right=True,
            calls=(call((1.0 if arm == AUTO else required_ttft) + seed / 100, 0), call(0.2, 96)), tokens_per_s=10.0,
        )
        for seed in range(6) for arm in (AUTO, REQUIRED)
    ]  # fmt: skip


def test_waits_of_first_and_later_calls_are_told_apart_and_a_price_is_named() -> None:
    said = analyse_cost(ARMS, cost_records(1.5)).conclusion
    assert "agree in 24 of 24 calls" in said
    assert "waits 1.02 [1.01, 1.04] s" in said
    assert "out of the cache, 0.2 [0.2, 0.2] s" in said
    assert "changes the wait of the first call by +0.50" in said


def test_a_price_that_is_none_is_said_to_be_none() -> None:
    said = analyse_cost(ARMS, cost_records(1.0)).conclusion
    assert "does not change the wait of the first call beyond chance" in said
