from __future__ import annotations

import pytest

from experiments.framework import Analysis
from experiments.status_bar.techniques_analysis import analyse
from experiments.status_bar.techniques_design import ARMS, NONE
from serving.assembler.status_bar import Technique
from serving.errors import UsageError
from tests.support.technique_records import Rule, record, records

TODO, COUNTERS = Technique.TODO, Technique.CALL_COUNTERS


def analysed(rule: Rule, tasks: int = 8) -> Analysis:
    return analyse(ARMS, records(rule, tasks))


def test_a_technique_that_helps_is_named_with_its_size_and_its_p() -> None:
    found = analysed(lambda on, task: {"success": TODO in on, "subtasks_missed": 0 if TODO in on else 2})
    assert "With TODO list tasks solved rise: +1.00 [+1.00, +1.00] (n 8 tasks, p 0.039 after Holm)." in (
        found.conclusion
    )
    assert "With TODO list subtasks missed fall: -2.00" in found.conclusion
    assert "64 of 128 trials are solved (8 tasks under 16 arms): phone 32 of 64, files 32 of 64." in (
        found.conclusion
    )


def test_a_floor_is_called_a_floor_and_no_effect_is_claimed() -> None:
    found = analysed(lambda on, task: {"success": False})
    assert "No task was solved in any arm (128 trials)" in found.conclusion
    assert "at the floor" in found.conclusion
    assert "On subtasks missed nothing can be seen: every trial has 3." in found.conclusion
    assert " rise: " not in found.conclusion
    assert " fall: " not in found.conclusion


def test_a_ceiling_is_called_one() -> None:
    found = analysed(lambda on, task: {"success": True, "subtasks_missed": 0})
    assert "Every task was solved in every arm (128 trials)" in found.conclusion


def test_a_null_says_what_would_have_been_found() -> None:
    found = analysed(lambda on, task: {"success": (len(on) + task) % 3 == 0})
    assert "No technique changes tasks solved beyond chance (the largest: " in found.conclusion
    assert "would have been found 8 times in 10" in found.conclusion


def test_few_tasks_are_said_to_be_few() -> None:
    found = analysed(lambda on, task: {"success": TODO in on}, tasks=2)
    assert "On tasks solved there are 2 tasks, too few for an interval (it takes 5)." in found.conclusion
    assert " rise: " not in found.conclusion


def test_an_interaction_is_told_as_one() -> None:
    found = analysed(lambda on, task: {"success": (TODO in on) == (COUNTERS in on)}, tasks=10)
    assert "Interactions beyond chance: call counters × TODO list on tasks solved (+1.00" in found.conclusion
    assert "No technique changes tasks solved beyond chance" in found.conclusion


def test_arms_alone_say_nothing_of_effects_and_still_have_their_row() -> None:
    found = analyse(ARMS, [record(NONE, "phone-0", 0, success=True, violations=0)])
    assert "nothing is said of effects" in found.conclusion
    runs = next(table for table in found.tables if table.title == "The runs")
    assert [row[0] for row in runs.rows] == ["None"]


def test_violations_count_on_tasks_with_a_limit_alone() -> None:
    found = analysed(lambda on, task: {"violations": None if task % 2 else int(COUNTERS not in on)}, tasks=10)
    table = next(one for one in found.tables if one.title == "Main effects on calls beyond the limit")
    cells = {row[0]: row for row in table.rows}
    assert cells["call counters"][1:3] == (5, "-1.000 [-1.000, -1.000]")
    assert "Only tasks with a limit count." in table.note


def test_a_trial_that_the_server_refused_counts_as_unsolved_and_has_no_other_measure() -> None:
    made = records(lambda on, task: {"success": True})
    made[0] = made[0].model_copy(update={"measures": {"success": False}})
    found = analyse(ARMS, made)
    assert "127 of 128 trials are solved" in found.conclusion


def test_every_table_is_as_wide_as_its_columns_and_every_figure_has_five_bars() -> None:
    found = analysed(lambda on, task: {"success": TODO in on, "violations": task % 2})
    for table in found.tables:
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.columns)}
    assert [len(figure.bars) for figure in found.figures] == [5] * 4  # type: ignore[union-attr]


def test_records_of_other_arms_are_refused() -> None:
    stranger = record(NONE, "phone-0", 0).model_copy(update={"arm": "elsewhere"})
    with pytest.raises(UsageError, match="No record is of an arm"):
        analyse(ARMS, [stranger])
