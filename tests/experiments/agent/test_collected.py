from __future__ import annotations

from pathlib import Path

import pytest

from experiments.agent.callform import CallForm
from experiments.agent.collected import CollectedTurn, collect
from experiments.agent.events import GaveUpReason
from experiments.agent.loop import run_turn
from experiments.agent.settings import TurnSettings
from serving.assembler import Trajectory
from serving.call import DecodeOptions
from serving.client import Exchange
from serving.errors import LabError
from tests.support.made_tools import file_toolbox
from tests.support.scripted import CONTEXT, ScriptedCaller, exchange, received

READ_A = '{"path": "a.txt"}'
FENCED = '```json\n{"name": "head", "arguments": {"path": "a.txt"}}\n```'


def collected(root: Path, *replies: Exchange, max_iterations: int = 8) -> CollectedTurn:
    (root / "a.txt").write_text("alpha\n")
    tools = file_toolbox(root)
    settings = TurnSettings(
        context=CONTEXT,
        window=5000,
        decode=DecodeOptions(max_tokens=100),
        salt="s",
        max_iterations=max_iterations,
    )
    start = Trajectory(system="Be brief.", tools=tools.specs, turns=())
    return collect(run_turn(ScriptedCaller(replies), tools, start, "What is in a.txt?", settings))


def test_a_collected_turn_holds_every_call_every_tool_and_the_answer(tmp_path: Path) -> None:
    turn = collected(
        tmp_path,
        exchange(
            "",
            received("head", READ_A, "one"),
            received("read_file", READ_A, "two", index=1),
            received("no_tool", "{}", "three", index=2),
        ),
        exchange(FENCED),
        exchange("alpha"),
    )
    assert (turn.answer, turn.gave_up) == ("alpha", None)
    assert turn.forms == (CallForm.NATIVE, CallForm.FENCED, CallForm.NONE)
    assert turn.calls_by_form() == {CallForm.NATIVE: 3, CallForm.FENCED: 1}
    assert [tool.call.id for tool in turn.tools_started][:2] == ["one", "two"]
    assert len(turn.tools_finished) == 4
    assert len(turn.sent) == len(turn.calls) == 3
    assert turn.trajectory.turns[-1] == turn.end.trajectory.turns[-1]


def test_two_tools_of_one_message_count_as_side_by_side_and_two_of_two_messages_do_not(
    tmp_path: Path,
) -> None:
    together = exchange("", received("head", READ_A, "x"), received("tail", READ_A, "y", index=1))
    assert collected(tmp_path, together, exchange("done")).side_by_side == 1
    apart = (exchange("", received("head", READ_A, "x")), exchange("", received("tail", READ_A, "y")))
    assert collected(tmp_path, *apart, exchange("done")).side_by_side == 0


def test_a_message_that_cannot_be_read_counts_once_by_its_form(tmp_path: Path) -> None:
    turn = collected(tmp_path, exchange('<tool_call>\n{"name": "head"'), exchange("sorry"))
    assert turn.calls_by_form() == {CallForm.MALFORMED: 1}
    assert turn.tools_finished == ()


def test_a_turn_that_gave_up_says_why_and_has_no_answer(tmp_path: Path) -> None:
    turn = collected(tmp_path, exchange("", received("head", READ_A)), max_iterations=1)
    assert (turn.answer, turn.gave_up) == (None, GaveUpReason.MAX_ITERATIONS)


def test_events_without_an_end_are_refused() -> None:
    with pytest.raises(LabError, match="end without one"):
        collect(())
