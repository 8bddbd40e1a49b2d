from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.workloads import CageAsk, Reason, cage_count
from serving.assembler import TaskStateText, ToolStep


@settings(max_examples=40)
@given(seed=st.integers(0, 999), cats=st.integers(2, 400), others=st.integers(0, 50), page=st.integers(1, 60))
def test_the_register_holds_every_cage_once_in_pages(seed: int, cats: int, others: int, page: int) -> None:
    scenario = cage_count(seed, cats=cats, others=others, page=page)
    steps = [turn for turn in scenario.trajectory.turns if isinstance(turn, ToolStep)]
    pages = [step.results[0].content.splitlines() for step in steps]
    assert [line for lines in pages for line in lines] == [cage.line for cage in scenario.cages]
    assert all(len(lines) == page for lines in pages[:-1])
    assert len({cage.label for cage in scenario.cages}) == cats + others
    in_colour = [cage for cage in scenario.cages if (cage.animal, cage.colour) == ("cat", scenario.colour)]
    assert len(in_colour) == scenario.counted


@settings(max_examples=30)
@given(seed=st.integers(0, 999), cats=st.integers(2, 1200))
def test_no_figure_stands_anywhere_so_a_count_cannot_be_copied(seed: int, cats: int) -> None:
    scenario = cage_count(seed, cats=cats, others=5)
    for turn in scenario.trajectory.turns:
        assert not re.search(r"\d", getattr(turn, "text", ""))
        for result in getattr(turn, "results", ()):
            assert not re.search(r"\d", result.content)
        for call in getattr(turn, "calls", ()):
            assert not re.search(r"\d", call.arguments)


def test_ninety_to_ten_can_be_asked_for_and_other_counts_come_from_the_seed() -> None:
    assert cage_count(0, cats=100, counted=10).expected == "10"
    assert len({cage_count(seed).expected for seed in range(60)}) > 5


def test_other_animals_in_the_colour_asked_for_are_there_and_do_not_count() -> None:
    scenario = cage_count(4, cats=40, others=30)
    same = [cage for cage in scenario.cages if cage.colour == scenario.colour and cage.animal != "cat"]
    assert len(same) >= 10
    assert any(cage.animal is None for cage in scenario.cages)


def test_the_summary_says_the_count_that_code_makes() -> None:
    scenario = cage_count(2, cats=30, counted=4, others=9)
    payload = scenario.summary().payload
    assert isinstance(payload, TaskStateText)
    assert f"{scenario.colour} cats: 4" in payload.text.splitlines()
    assert len(payload.text.splitlines()) == 2
    assert sum(int(line.split(": ")[1]) for line in payload.text.splitlines()) == 30


@pytest.mark.parametrize(("off", "detail"), [(1, "off by +1"), (-2, "off by -2")])
def test_a_wrong_count_says_by_how_much(off: int, detail: str) -> None:
    scenario = cage_count(0)
    grade = scenario.grade(str(scenario.counted + off))
    assert grade.reason is Reason.WRONG
    assert detail in grade.detail


def test_looking_up_asks_for_one_cat_and_tells_another_cage_from_nonsense() -> None:
    scenario = cage_count(3, others=6, ask=CageAsk.LOOK_UP)
    (asked,) = [cage for cage in scenario.cages if cage.label == scenario.asked_cage]
    assert (asked.animal, asked.colour) == ("cat", scenario.expected)
    present = {cage.colour for cage in scenario.cages}
    for colour in scenario.choices:
        expected = (
            Reason.CORRECT
            if colour == scenario.expected
            else (Reason.OTHER_ITEM if colour in present else Reason.WRONG)
        )
        assert scenario.grade(colour).reason is expected


def test_the_same_seed_asks_both_questions_of_the_same_register() -> None:
    assert cage_count(5).cages == cage_count(5, ask=CageAsk.LOOK_UP).cages
