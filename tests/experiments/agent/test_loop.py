from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from experiments.agent.callform import CallForm
from experiments.agent.events import (
    AgentEvent,
    Answer,
    CallFinished,
    CallStarted,
    GaveUp,
    GaveUpReason,
    ModelEvent,
    ToolFinished,
    ToolStarted,
)
from experiments.agent.loop import EMPTY_MESSAGE, CallFailedError, run_turn
from experiments.agent.settings import TurnSettings
from experiments.agent.tools import FINISH, Toolbox, finish_tool
from serving.assembler import (
    AssistantTurn,
    BarMode,
    BarPolicy,
    ContextPolicy,
    ToolStep,
    Trajectory,
    UserTurn,
)
from serving.call import DecodeOptions
from serving.client import ErrorKind, Exchange
from serving.errors import UsageError
from tests.support.made_tools import file_toolbox
from tests.support.scripted import CONTEXT, ScriptedCaller, exchange, received

NOON = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)


@pytest.fixture
def tools(tmp_path: Path) -> Toolbox:
    (tmp_path / "a.txt").write_text("alpha\n")
    (tmp_path / "b.txt").write_text("beta\n")
    return file_toolbox(tmp_path)


def settings(**more: object) -> TurnSettings:
    decode = DecodeOptions(max_tokens=100)
    return TurnSettings(**{"context": CONTEXT, "window": 5000, "decode": decode, "salt": "s", **more})


def play(
    tools: Toolbox, *replies: Exchange, trajectory: Trajectory | None = None, **more: object
) -> tuple[list[AgentEvent], ScriptedCaller]:
    caller = ScriptedCaller(replies)
    start = trajectory or Trajectory(system="Be brief.", tools=tools.specs, turns=())
    return list(run_turn(caller, tools, start, "What is in a.txt?", settings(**more))), caller


READ_A = '{"path":   "a.txt"}'  # the odd spacing has to survive


def test_a_turn_tells_every_step_in_order_and_ends_with_the_answer(tools: Toolbox) -> None:
    events, caller = play(
        tools, exchange("Let me look.", received("read_file", READ_A), reasoning="hm"), exchange("alpha")
    )
    assert [type(event) for event in events] == [
        CallStarted, ModelEvent, CallFinished, ToolStarted, ToolFinished,
        CallStarted, ModelEvent, CallFinished, Answer,
    ]  # fmt: skip
    answer = events[-1]
    assert isinstance(answer, Answer)
    question, step, final = answer.trajectory.turns
    assert question == UserTurn(text="What is in a.txt?")
    assert isinstance(step, ToolStep)
    assert (step.text, step.reasoning, step.calls[0].arguments) == ("Let me look.", "hm", READ_A)
    assert step.results[0].content == "alpha"
    assert final == AssistantTurn(text="alpha")
    forms = [event.said.form for event in events if isinstance(event, CallFinished)]
    assert forms == [CallForm.NATIVE, CallForm.NONE]
    assert len(caller.started) == 2


def test_the_result_of_the_finishing_tool_is_the_answer_and_nothing_is_asked_after_it(tools: Toolbox) -> None:
    box = Toolbox((*tools.tools, finish_tool()))
    events, caller = play(
        box,
        exchange("", received("finish", '{"answer": 7}')),  # fails, so it ends nothing
        exchange(
            "", received("read_file", READ_A), received("finish", '{"answer": "It holds alpha."}', index=1)
        ),
        exchange("never asked"),
        finish=FINISH,
    )
    answer = events[-1]
    assert isinstance(answer, Answer)
    assert answer.text == "It holds alpha."
    assert len(caller.started) == 2
    step = answer.trajectory.turns[-1]
    assert isinstance(step, ToolStep)
    assert [result.content for result in step.results] == ["alpha", "It holds alpha."]


def test_a_tool_ends_a_turn_only_where_the_settings_name_it(tools: Toolbox) -> None:
    box = Toolbox((*tools.tools, finish_tool()))
    events, caller = play(box, exchange("", received("finish", '{"answer": "done"}')), exchange("alpha"))
    assert isinstance(events[-1], Answer)
    assert events[-1].text == "alpha"
    assert len(caller.started) == 2


def test_what_the_loop_asks_again_is_as_old_as_the_question_that_it_repeats(tools: Toolbox) -> None:
    seconds = iter(range(100))
    events, caller = play(
        tools, exchange(""), exchange("alpha"), clock=lambda: NOON + timedelta(seconds=next(seconds))
    )
    assert isinstance(events[-1], Answer)
    times = events[-1].progress.times
    assert len(caller.started) == 2
    assert times["turn-002"] == times["turn-000"]


@pytest.mark.parametrize("nothing", ["", " \n"])
def test_an_empty_message_is_no_answer_and_the_model_is_asked_to_go_on(tools: Toolbox, nothing: str) -> None:
    events, caller = play(
        tools, exchange("", received("read_file", READ_A)), exchange(nothing), exchange("alpha")
    )
    answer = events[-1]
    assert isinstance(answer, Answer)
    assert answer.text == "alpha"
    assert answer.trajectory.turns[-3:] == (
        AssistantTurn(text=nothing),
        UserTurn(text=EMPTY_MESSAGE),
        AssistantTurn(text="alpha"),
    )
    assert len(caller.started) == 3


@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_an_empty_message_more_than_is_allowed_is_the_answer(tools: Toolbox, allowed: int) -> None:
    events, caller = play(tools, *[exchange("")] * 4, max_empty=allowed)
    answer = events[-1]
    assert isinstance(answer, Answer)
    assert answer.text == ""
    assert len(caller.started) == allowed + 1


def test_a_turn_that_ends_while_the_model_is_asked_to_go_on_says_that_there_is_no_answer(
    tools: Toolbox,
) -> None:
    events, _ = play(tools, *[exchange("")] * 4, max_iterations=2)
    gave_up = events[-1]
    assert isinstance(gave_up, GaveUp)
    assert gave_up.reason is GaveUpReason.MAX_ITERATIONS
    assert "there is none" in gave_up.sentence


def test_every_request_repeats_the_one_before_and_adds_to_it(tools: Toolbox) -> None:
    _, caller = play(
        tools,
        exchange("", received("read_file", READ_A, "one")),
        exchange("", received("grep", '{"pattern": "beta"}', "two")),
        exchange("done"),
    )
    sent = [start.packet.messages for start in caller.started]
    assert [len(messages) for messages in sent] == [2, 4, 6]
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(sent))
    assert all(start.packet.tools == caller.started[0].packet.tools for start in caller.started)


def test_several_calls_of_one_message_run_in_their_order(tools: Toolbox) -> None:
    events, _ = play(
        tools,
        exchange(
            "",
            received("head", '{"path": "b.txt"}', "x"),
            received("head", '{"path": "a.txt"}', "y", index=1),
        ),
        exchange("done"),
    )
    ran = [(event.call.id, event.outcome.text) for event in events if isinstance(event, ToolFinished)]
    assert ran == [("x", "beta"), ("y", "alpha")]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (received("no_tool", "{}"), "There is no tool 'no_tool'"),
        (received(None, "{}"), "There is no tool 'unnamed'"),
        (received("read_file", '{"path": "a.t'), "Invalid JSON"),
        (received("read_file", "[]"), "Wrong arguments"),
        (received("read_file", '{"path": "../a"}'), "'..'"),
    ],
)
def test_a_wrong_call_is_answered_in_words_and_the_turn_goes_on(tools: Toolbox, call, words: str) -> None:
    events, _ = play(tools, exchange("", call), exchange("sorry"))
    finished = next(event for event in events if isinstance(event, ToolFinished))
    assert not finished.outcome.ok
    assert words in finished.outcome.text
    answer = events[-1]
    assert isinstance(answer, Answer)
    assert answer.trajectory.turns[1].results[0].failed


def test_a_missing_or_repeated_id_is_replaced_and_said(tools: Toolbox) -> None:
    events, _ = play(
        tools,
        exchange("", received("head", READ_A, "call_0")),
        exchange("", received("head", READ_A, "call_0"), received("head", READ_A, None, index=1)),
        exchange("done"),
    )
    started = [event for event in events if isinstance(event, ToolStarted)]
    assert [event.received_id for event in started] == ["call_0", "call_0", None]
    assert [event.received_id == event.call.id for event in started] == [True, False, False]
    assert len({event.call.id for event in started}) == 3


def test_a_call_between_code_fences_is_run_and_recorded_as_such(tools: Toolbox) -> None:
    text = 'I will read it.\n```json\n{"name": "read_file", "arguments": {"path":  "a.txt"}}\n```'
    events, caller = play(tools, exchange(text), exchange("alpha"))
    first = next(event for event in events if isinstance(event, CallFinished))
    assert first.said.form is CallForm.FENCED
    calling = caller.started[1].packet.messages[2]
    assert calling.content == "I will read it."
    assert calling.tool_calls[0].arguments == '{"path":  "a.txt"}'


def test_fences_are_left_alone_where_they_are_not_accepted(tools: Toolbox) -> None:
    text = '```json\n{"name": "read_file", "arguments": {"path": "a.txt"}}\n```'
    events, _ = play(tools, exchange(text), accept=frozenset())
    assert isinstance(events[-1], Answer)
    assert events[-1].text == text


def test_a_model_that_only_calls_tools_is_stopped_and_its_steps_are_kept(tools: Toolbox) -> None:
    replies = [exchange("", received("head", READ_A, f"c{n}")) for n in range(3)]
    events, caller = play(tools, *replies, max_iterations=3)
    assert isinstance(events[-1], GaveUp)
    assert events[-1].reason is GaveUpReason.MAX_ITERATIONS
    assert len(events[-1].trajectory.turns) == 4
    assert len(caller.started) == 3


def test_a_packet_that_does_not_fit_is_not_sent_and_the_numbers_are_told(tools: Toolbox) -> None:
    events, caller = play(tools, window=150)
    assert isinstance(events[-1], GaveUp)
    assert events[-1].reason is GaveUpReason.HAND_OFF
    assert events[-1].hand_off is not None
    assert "at most 50 tokens" in events[-1].sentence
    assert caller.started == []


def test_a_failed_call_is_an_error_with_what_was_done_before_it(tools: Toolbox) -> None:
    with pytest.raises(CallFailedError, match="stub broke") as failed:
        play(tools, exchange("", received("head", READ_A)), exchange("al", error=ErrorKind.CUT))
    assert len(failed.value.trajectory.turns) == 2
    assert failed.value.call.exchange.text == "al"


def test_a_turn_that_is_closed_cancels_its_call_and_has_not_happened(tools: Toolbox) -> None:
    caller = ScriptedCaller([exchange("a long answer")])
    start = Trajectory(tools=tools.specs, turns=())
    turn = run_turn(caller, tools, start, "hello", settings())
    assert isinstance(next(turn), CallStarted)
    assert isinstance(next(turn), ModelEvent)
    turn.close()
    assert caller.started[0].cancelled
    assert start.turns == ()


def test_a_finished_call_is_not_cancelled(tools: Toolbox) -> None:
    caller = ScriptedCaller([exchange("", received("head", READ_A))])
    turn = run_turn(caller, tools, Trajectory(tools=tools.specs, turns=()), "hello", settings())
    while not isinstance(next(turn), ToolStarted):
        pass
    turn.close()
    assert not caller.started[0].cancelled


def test_a_question_that_utf8_cannot_carry_is_refused(tools: Toolbox) -> None:
    with pytest.raises(UsageError, match="surrogate"):
        next(run_turn(ScriptedCaller([]), tools, Trajectory(turns=()), "a\ud800", settings()))


def test_a_bar_that_stays_is_repeated_over_the_calls_of_a_run(tools: Toolbox) -> None:
    policy = ContextPolicy(status_bar=BarPolicy(mode=BarMode.APPEND))
    events, caller = play(
        tools, exchange("", received("read_file", READ_A)), exchange("alpha"), policy=policy
    )
    first, second = (start.packet.messages for start in caller.started)
    assert second[: len(first)] == first
    assert sum("<agent_status>" in (message.content or "") for message in second) == 2
    answer = events[-1]
    assert isinstance(answer, Answer)
    assert len(answer.trajectory.carry.bars) == 2
