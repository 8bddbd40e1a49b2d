"""Every reason for which a call is not run, told as a typed observation."""

from __future__ import annotations

import pytest

from experiments.agent.events import Answer, GaveUp, GaveUpReason, ToolFinished
from experiments.agent.loop import run_turn
from experiments.agent.refusals import Catalogue, RefusalReason, read_arguments
from experiments.agent.settings import TurnSettings
from serving.assembler import (
    Authority,
    DeferredTool,
    DeferredTools,
    Kind,
    Observation,
    RunLimits,
    Stage,
    TaskState,
    ToolCall,
    Trajectory,
)
from serving.call import DecodeOptions
from serving.client import Exchange
from tests.support.made_tools import MadeTools, contract
from tests.support.scripted import CONTEXT, ScriptedCaller, exchange, received

R = RefusalReason


def play(tools: MadeTools, *replies: Exchange, offered=None, **more: object):
    caller = ScriptedCaller(replies)
    settings = TurnSettings(
        **{"context": CONTEXT, "window": 9000, "decode": DecodeOptions(max_tokens=99), "salt": "s", **more}
    )
    specs = tools.specs if offered is None else offered
    start = Trajectory(tools=specs, turns=())
    return list(run_turn(caller, tools, start, "Go.", settings)), caller


def calls(*named: tuple[str, str]) -> Exchange:
    return exchange(
        "", *(received(name, arguments, f"id-{n}", n) for n, (name, arguments) in enumerate(named))
    )


@pytest.mark.parametrize(
    ("name", "arguments", "state", "reason"),
    [
        ("nope", "{}", TaskState(), R.UNKNOWN_TOOL),
        ("r", "{", TaskState(), R.MALFORMED_ARGUMENTS),
        ("r", "[]", TaskState(), R.MALFORMED_ARGUMENTS),
        ("r", '{"x": NaN}', TaskState(), R.MALFORMED_ARGUMENTS),
        ("r", '{"x": "1"}', TaskState(), R.WRONG_ARGUMENTS),
        ("r", '{"y": 1}', TaskState(), R.WRONG_ARGUMENTS),
        ("r", "{}", TaskState(allowed_tools=frozenset({"w"})), R.NOT_ALLOWED),
        ("w", "{}", TaskState(stage=Stage.DISCOVERY), R.NOT_IN_STAGE),
        ("c", "{}", TaskState(stage=Stage.ACTION), R.NOT_IN_STAGE),
        ("c", "{}", TaskState(stage=Stage.ACTION, command="w", approved=True), R.NOT_IN_STAGE),
        ("r", "{}", TaskState(limits=RunLimits(tool_attempts=0)), R.NO_ATTEMPTS_LEFT),
        ("c", "{}", TaskState(), R.NOT_APPROVED),
    ],
)
def test_a_call_that_breaks_a_rule_is_not_run_and_its_observation_says_which(
    name: str, arguments: str, state: TaskState, reason: RefusalReason
) -> None:
    tools = MadeTools((contract("r"), contract("w", Authority.WRITE), contract("c", Authority.CONSEQUENTIAL)))
    events, _ = play(tools, calls((name, arguments)), exchange("sorry"), state=state)
    (finished,) = [event for event in events if isinstance(event, ToolFinished)]
    assert finished.refusal is reason
    assert tools.ran == []
    observation = Observation.read(finished.outcome.text)
    assert (observation.status, observation.error_class, observation.tool) == ("refused", reason.value, name)
    assert isinstance(events[-1], Answer)
    assert events[-1].trajectory.turns[1].results[0].failed


def test_a_call_without_arguments_may_be_an_empty_text() -> None:
    tools = MadeTools((contract("r"),))
    play(tools, calls(("r", "")), exchange("done"))
    assert tools.ran == [("r", "")]


def test_attempts_count_over_the_calls_of_one_message_and_then_no_tool_is_offered() -> None:
    tools = MadeTools((contract("r"),))
    three = calls(("r", "{}"), ("r", '{"x": 1}'), ("r", '{"x": 2}'))
    state = TaskState(limits=RunLimits(tool_attempts=2))
    events, caller = play(tools, three, exchange("done"), state=state)
    refusals = [event.refusal for event in events if isinstance(event, ToolFinished)]
    assert refusals == [None, None, R.NO_ATTEMPTS_LEFT]
    assert [len(start.packet.tools) for start in caller.started] == [1, 0]


def test_a_deferred_tool_is_loaded_by_the_first_call_and_run_by_the_next() -> None:
    late = contract("late")
    tools = MadeTools((contract("r"), late))
    deferred = DeferredTools(tools=(DeferredTool(contract=late, line="Good for later."),))
    events, caller = play(
        tools,
        calls(("late", "{}")),
        exchange("", received("late", "{}", "again")),
        exchange("done"),
        offered=tools.specs[:1],
        deferred=deferred,
    )
    assert [event.refusal for event in events if isinstance(event, ToolFinished)] == [R.NOT_LOADED, None]
    assert tools.ran == [("late", "{}")]
    sent = [start.packet.messages for start in caller.started]
    assert "Good for later." in (sent[0][0].content or "")
    # The head and the offered tools keep their bytes; the definition stands behind the turn that asked for it.
    assert all(messages[0] == sent[0][0] for messages in sent)
    assert all(start.packet.tools == caller.started[0].packet.tools for start in caller.started)
    assert sent[2][: len(sent[1])] == sent[1]
    kinds = [item.kind for item in caller.started[1].packet.manifest.selected]
    assert kinds.count(Kind.TOOL_CONTRACT) == 2


def test_a_loaded_tool_is_still_refused_in_a_stage_that_does_not_offer_it() -> None:
    late = contract("late", Authority.WRITE)
    catalogue = Catalogue({"late": late})
    refusal = catalogue.refusal(
        ToolCall(id="1", name="late", arguments="{}"), TaskState(stage=Stage.DISCOVERY)
    )
    assert refusal is not None
    assert refusal.reason is R.NOT_IN_STAGE


def test_the_model_is_told_that_it_repeats_itself_and_then_the_turn_ends() -> None:
    tools = MadeTools((contract("r"),))
    same = ['{"x":1}', '{"x": 1}', ' {"x" : 1}', '{"x":1 }']
    replies = [exchange("", received("r", text, f"c{n}")) for n, text in enumerate(same)]
    events, _ = play(tools, *replies, max_same_calls=3)
    texts = [event.outcome.text for event in events if isinstance(event, ToolFinished)]
    assert "same arguments" not in texts[0]
    assert texts[1].startswith("[call number 2 with the same arguments]\n")
    assert texts[2].startswith("[call number 3 with the same arguments]\n")
    assert Observation.read(texts[3]).error_class == R.REPEATED_CALL.value
    assert len(tools.ran) == 3
    ended = events[-1]
    assert isinstance(ended, GaveUp)
    assert ended.reason is GaveUpReason.REPEATED_CALL
    assert all(turn.open_calls == () for turn in ended.trajectory.turns[1:])


def test_other_arguments_are_another_call() -> None:
    tools = MadeTools((contract("r"),))
    replies = [exchange("", received("r", f'{{"x": {n}}}', f"c{n}")) for n in range(5)]
    events, _ = play(tools, *replies, exchange("done"), max_same_calls=1)
    assert isinstance(events[-1], Answer)
    assert len(tools.ran) == 5


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"x": ' * 100_000])
def test_arguments_nested_without_end_are_malformed_and_nothing_breaks(deep: str) -> None:
    assert isinstance(read_arguments(deep), str)


def test_a_message_with_a_call_that_cannot_be_read_is_answered_and_the_turn_goes_on() -> None:
    tools = MadeTools((contract("r"),))
    events, caller = play(tools, exchange('```json\n{"name": "r", "arguments": {'), exchange("done"))
    answer = events[-1]
    assert isinstance(answer, Answer)
    assert [turn.kind for turn in answer.trajectory.turns] == [
        Kind.USER_TURN,
        Kind.ASSISTANT_TURN,
        Kind.USER_TURN,
        Kind.ASSISTANT_TURN,
    ]
    assert "cannot be read" in (caller.started[1].packet.messages[-1].content or "")
