"""Who keeps the tasks is decided before anything is said of cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.framework import Arm, CallRecord, TrialRecord
from experiments.prefix_cache.live_analysis import analyse, ranking, standing
from serving.errors import UsageError
from tests.support.made_record import made_record

ARMS = tuple(
    Arm(name=name, title=name.capitalize(), why=".", factors={})
    for name in ("append-only", "cheap", "dear", "null-rebuild")
)


def record(arm: str, task: int, *, solved: bool, computed: int, found: int = 0) -> TrialRecord:
    call = CallRecord(prompt_tokens=1000, cached_tokens=1000 - computed, predicted_tokens=1000 - computed)
    return made_record(
        "prefix-cache-live",
        arm,
        f"file-question-{task}",
        0,
        {
            "success": solved,
            "facts_found": found,
            "iterations": 1,
            "tool_calls": 3,
            "repeated_calls": 1,
            "gave_up": None,
            "uncached_tokens": computed,
            "ttft_s": 1.0,
            "latency_s": 2.0,
        },
        calls=(call,),
    )


def run(solved: Mapping[str, Sequence[bool]], computed: Mapping[str, int]) -> list[TrialRecord]:
    return [
        record(arm, task, solved=one, computed=computed[arm])
        for arm, all_tasks in solved.items()
        for task, one in enumerate(all_tasks)
    ]


CHEAP_FAILURE = run(
    {"append-only": [True] * 6, "cheap": [True] * 5 + [False], "dear": [True] * 6},
    {"append-only": 200, "cheap": 10, "dear": 900},
)


def test_an_arm_that_loses_a_task_is_not_ranked_however_cheap_it_is() -> None:
    ranked = ranking(tuple(standing(ARMS[:3], CHEAP_FAILURE)), CHEAP_FAILURE)
    assert [one.standing.arm.name for one in ranked] == ["append-only", "dear"]
    analysis = analyse(ARMS, CHEAP_FAILURE)
    tables = {table.title: table for table in analysis.tables}
    assert [row[0] for row in tables["What keeping the tasks costs, cheapest first"].rows] == [
        "Append-only",
        "Dear",
    ]
    assert [row[0] for row in tables["Apart: arms without a rank"].rows] == ["Cheap"]
    cost = next(figure for figure in analysis.figures if figure.name == "cost-of-solved-tasks")
    assert [bar.label for bar in cost.bars] == ["Append-only", "Dear"]
    assert "Not ranked, for they solve fewer tasks: “Cheap” (5)." in analysis.conclusion
    assert "both solve: “Dear” 4.50 times (tasks: 6)." in analysis.conclusion


def test_where_append_only_solves_nothing_nothing_is_ranked() -> None:
    records = run(
        {"append-only": [False] * 3, "cheap": [True] * 3, "dear": [False] * 3},
        {"append-only": 1, "cheap": 1, "dear": 1},
    )
    analysis = analyse(ARMS, records)
    assert "no arm is ranked by cost" in analysis.conclusion
    assert analysis.tables[1].rows == ()


def test_an_arm_without_a_common_task_is_told_from_one_that_loses_tasks() -> None:
    records = run(
        {"append-only": [True, True, False], "cheap": [False, False, True], "dear": [False, False, False]},
        {"append-only": 1, "cheap": 1, "dear": 1},
    )
    said = analyse(ARMS, records).conclusion
    assert "Not ranked, for they solve fewer tasks: “Cheap” (1), “Dear” (0)." in said
    kept = run({"append-only": [True, False], "cheap": [False, True]}, {"append-only": 1, "cheap": 1})
    said = analyse(ARMS, kept).conclusion
    assert "fewer tasks" not in said
    assert "Not ranked, for none of their tasks was solved by both: “Cheap” (1)." in said


def test_the_null_arm_is_no_other_arm() -> None:
    records = run(
        {"append-only": [True] * 6, "null-rebuild": [True] * 6, "dear": [True] * 6},
        {"append-only": 100, "null-rebuild": 100, "dear": 300},
    )
    analysis = analyse(ARMS, records)
    assert "1 of 1 other arms solve at least as many" in analysis.conclusion
    rows = {row[0]: row for row in analysis.tables[0].rows}
    p = analysis.tables[0].columns.index("p (Holm)")
    assert (rows["Null-rebuild"][p], rows["Append-only"][p]) == ("", "")
    assert rows["Dear"][p] == 1.0


def test_a_refused_request_is_no_wrong_answer() -> None:
    refused = made_record("prefix-cache-live", "cheap", "file-question-5", 0, {"success": False})
    records = [one for one in CHEAP_FAILURE if (one.arm, one.task) != ("cheap", "file-question-5")]
    apart = analyse(ARMS, [*records, refused]).tables[2]
    assert apart.rows[0][-1] == "5 solved, 0 answered wrong, 0 without an answer, 1 refused by the server"


def test_a_cost_counts_the_same_tasks_on_both_sides() -> None:
    records = run(
        {"append-only": [True, True, False], "cheap": [True, False, True]},
        {"append-only": 0, "cheap": 0},
    )
    # Each arm's own third task is dear, and neither may enter: only task 0 was solved by both.
    tokens = {("append-only", 0): 100, ("cheap", 0): 50, ("append-only", 1): 9_00, ("cheap", 2): 9_00}
    changed = [
        one.model_copy(
            update={
                "measures": {
                    **one.measures,
                    "uncached_tokens": tokens.get((one.arm, int(one.task[-1])), 0),
                }
            }
        )
        for one in records
    ]
    (cheap,) = [
        one
        for one in ranking(tuple(standing(ARMS[:2], changed)), changed)
        if one.standing.arm.name == "cheap"
    ]
    assert cheap.ratio == 0.5
    assert (cheap.standing.solved.only_first, cheap.standing.solved.only_second) == (1, 1)


def test_an_arm_of_unknown_cost_has_no_rank() -> None:
    records = [
        one.model_copy(update={"measures": {**one.measures, "uncached_tokens": None}})
        if one.arm == "dear"
        else one
        for one in CHEAP_FAILURE
    ]
    ranked = ranking(tuple(standing(ARMS[:3], records)), records)
    assert [one.standing.arm.name for one in ranked] == ["append-only"]


outcomes = st.lists(st.booleans(), min_size=4, max_size=4)


@given(outcomes, outcomes, st.integers(1, 500), st.integers(1, 500))
def test_whatever_it_costs_an_arm_is_ranked_by_its_tasks_alone(
    base: list[bool], other: list[bool], base_cost: int, cost: int
) -> None:
    records = run({"append-only": base, "cheap": other}, {"append-only": base_cost, "cheap": cost})
    ranked = {one.standing.arm.name for one in ranking(tuple(standing(ARMS[:2], records)), records)}
    both = any(a and b for a, b in zip(base, other, strict=True))
    assert ("cheap" in ranked) == (both and sum(other) >= sum(base))


def test_a_run_without_the_base_is_refused() -> None:
    with pytest.raises(UsageError, match="append-only"):
        analyse(ARMS, [record("cheap", 0, solved=True, computed=1)])


def test_the_repeated_calls_of_an_arm_are_a_share_of_its_calls() -> None:
    table = analyse(ARMS, CHEAP_FAILURE).tables[0]
    assert table.rows[0][table.columns.index("repeated calls")] == pytest.approx(1 / 3)
