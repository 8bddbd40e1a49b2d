from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from serving.assembler import (
    AssemblyRequest,
    Case,
    ContextItem,
    ContextPolicy,
    DropReason,
    Ending,
    Expectation,
    Expected,
    FixedCounter,
    RequestContext,
    Standing,
    ToolCall,
    ToolResult,
    ToolStep,
    UserTurn,
    Violation,
    violations,
)
from serving.errors import UsageError

DEFAULT = ContextPolicy()
COUNTER = FixedCounter()
ASKED = ContextItem(id="turn", payload=UserTurn(text="Export."))


def request(**more: Any) -> AssemblyRequest:
    context = RequestContext(tenant="t1", actor="u1", now="2026-10-02")
    return AssemblyRequest(**{"context": context, "window": 1000, "max_output": 10, **more})


def output(content: str) -> tuple[ContextItem, ...]:
    call = ToolCall(id="c1", name="export", arguments="{}")
    step = ToolStep(calls=(call,), results=(ToolResult(call_id="c1", content=content),))
    return (ASKED, ContextItem(id="export-step", payload=step))


def test_a_hand_off_and_verbatim_output_can_be_expected() -> None:
    small = request(history=output("row " * 2000))
    hand_off = Expectation(outcome=Ending.HAND_OFF)
    assert violations(small, DEFAULT, COUNTER, hand_off) == ()
    packet = Expectation(items=(Expected(id="export-step", standing=Standing.SELECTED, verbatim=True),))
    assert violations(request(history=output("ok")), DEFAULT, COUNTER, packet) == ()
    assert violations(request(history=output("ok")), DEFAULT, COUNTER, hand_off) == (
        Violation(id=None, expected="a hand_off", got="a packet"),
    )
    twice = request(history=(ASKED, ASKED))
    assert "a refusal: Every item id" in violations(twice, DEFAULT, COUNTER, packet)[0].got


@pytest.mark.parametrize(
    ("attempt", "sentence"),
    [
        (lambda: Expected(id="a", standing=Standing.DROPPED), "a reason belongs to a dropped item"),
        (
            lambda: Expected(id="a", standing=Standing.ABSENT, reason=DropReason.NO_ROOM),
            "a reason belongs to a dropped item",
        ),
        (
            lambda: Expected(id="a", standing=Standing.ABSENT, verbatim=True),
            "only a selected item is sent verbatim",
        ),
        (
            lambda: Case(name="../x", about="", request=request(), expectation=Expectation()),
            "Case.name",
        ),
    ],
)
def test_an_expectation_that_cannot_be_met_is_refused(attempt: Callable[[], object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        attempt()
