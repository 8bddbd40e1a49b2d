from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.workloads import Forbidden, Reason, rare_constraint
from serving.assembler import ToolCall, ToolStep


@settings(max_examples=50)
@given(seed=st.integers(0, 999), rooms=st.integers(4, 30), forbidden=st.sampled_from(Forbidden))
def test_the_two_cheapest_rooms_are_ruled_out_and_the_next_is_right(
    seed: int, rooms: int, forbidden: Forbidden
) -> None:
    scenario = rare_constraint(seed, rooms=rooms, forbidden=forbidden)
    by_price = sorted(scenario.rooms, key=lambda room: room.price)
    assert [scenario.breaks_constraint(room) for room in by_price[:3]] == [True, True, False]
    assert by_price[2].code == scenario.expected
    assert len({room.price for room in scenario.rooms}) == rooms


@settings(max_examples=30)
@given(seed=st.integers(0, 999), distance=st.integers(3, 25), forbidden=st.sampled_from(Forbidden))
def test_the_constraint_is_said_once_and_first_and_all_rooms_come_after_it(
    seed: int, distance: int, forbidden: Forbidden
) -> None:
    scenario = rare_constraint(seed, distance=distance, forbidden=forbidden)
    turns = scenario.trajectory.turns
    said = [index for index, turn in enumerate(turns) if scenario.constraint in getattr(turn, "text", "")]
    assert said == [0]
    assert scenario.constraint_id == "turn-000"
    steps = [turn for turn in turns if isinstance(turn, ToolStep)]
    assert len(steps) == distance
    shown = [line for step in steps for line in step.results[0].content.splitlines()]
    assert sorted(line for line in shown if ": a room" in line) == sorted(
        room.line for room in scenario.rooms
    )
    assert forbidden is Forbidden.FEATURE or not [
        text for text in scenario.distractors() if scenario.forbidden_value in text
    ]


def book(*codes: str) -> list[ToolCall]:
    return [
        ToolCall(id=f"c{number}", name="book_room", arguments=f'{{"code": "{code}"}}')
        for number, code in enumerate(codes)
    ]


@pytest.mark.parametrize("forbidden", Forbidden)
def test_each_choice_is_graded_for_its_own_reason_as_text_and_as_a_call(forbidden: Forbidden) -> None:
    scenario = rare_constraint(11, rooms=12, forbidden=forbidden)
    seen = set()
    for room in scenario.rooms:
        expected = (
            Reason.CONSTRAINT_BROKEN
            if scenario.breaks_constraint(room)
            else (Reason.CORRECT if room.code == scenario.expected else Reason.WRONG)
        )
        assert scenario.grade(room.code).reason is expected
        assert scenario.grade(room.code.lower()).reason is expected
        assert scenario.grade("", book(room.code)).reason is expected
        seen.add(expected)
    assert len(seen) == 3


def test_a_broken_constraint_is_quoted() -> None:
    scenario = rare_constraint(1)
    cheapest = min(scenario.rooms, key=lambda room: room.price)
    assert scenario.constraint in scenario.grade(cheapest.code).detail


@pytest.mark.parametrize("arguments", ["{", "[]", "{}", '{"code": 7}', '{"code": "NONE"}'])
def test_a_booking_that_names_no_room_is_no_answer(arguments: str) -> None:
    call = ToolCall(id="c", name="book_room", arguments=arguments)
    assert rare_constraint(1).grade("", [call]).reason is Reason.NO_ANSWER


def test_two_bookings_are_not_one_answer() -> None:
    scenario = rare_constraint(1)
    assert scenario.grade("", book(scenario.expected, scenario.expected)).reason is Reason.SEVERAL_ANSWERS
