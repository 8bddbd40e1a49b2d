"""Tools that run side by side, some of them while the model still writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from experiments.agent.events import AgentEvent, CallFinished, ToolFinished, ToolStarted
from experiments.agent.loop import CallFailedError, run_turn
from experiments.agent.settings import TurnSettings
from experiments.agent.tools import ToolOutcome
from serving.assembler import Authority, ToolStep, Trajectory
from serving.call import DecodeOptions
from serving.client import ErrorKind, ReceivedToolCall, StreamEvent, ToolCallComplete, ToolCallFragment
from tests.support.made_tools import MadeTools, contract
from tests.support.scripted import CONTEXT, ScriptedCaller, exchange, received

PATIENCE_S = 30
"""How long a test waits for what must come at once; a test that waits that long has failed."""


def settings(**more: object) -> TurnSettings:
    decode = DecodeOptions(max_tokens=100)
    return TurnSettings(**{"context": CONTEXT, "window": 9000, "decode": decode, "salt": "s", **more})


def turn(tools: MadeTools, caller: ScriptedCaller, **more: object) -> Iterator[AgentEvent]:
    return run_turn(caller, tools, Trajectory(tools=tools.specs, turns=()), "Go.", settings(**more))


def call(name: str, arguments: str = "{}", index: int = 0) -> ReceivedToolCall:
    return received(name, arguments, f"id-{index}", index)


def written(*calls: ReceivedToolCall) -> Iterator[StreamEvent]:
    """The stream of native calls, each complete at its last fragment."""
    for one in calls:
        yield ToolCallFragment(1, one.index, one.id, one.name, "", None)
        yield ToolCallFragment(1, one.index, None, None, one.arguments, None)
        yield ToolCallComplete(1, one)


class Signal(threading.Event):
    """Set by a tool when it runs."""

    def tool(self, arguments: str, cancel: threading.Event) -> ToolOutcome:
        self.set()
        return ToolOutcome("signalled", ok=True)


def test_the_first_tool_runs_before_the_second_call_is_written() -> None:
    ran = Signal()
    tools = MadeTools((contract("a"), contract("b")), {"a": ran.tool})
    first, second = call("a"), call("b", index=1)

    def stream() -> Iterator[StreamEvent]:
        yield from written(first)
        yield ToolCallFragment(2, 1, second.id, "b", "{", None)
        assert ran.wait(PATIENCE_S), "the first tool waited for the second call"
        yield ToolCallFragment(3, 1, None, None, "}", None)
        yield ToolCallComplete(3, second)

    caller = ScriptedCaller([exchange("", first, second), exchange("done")], streams={0: stream()})
    events = list(turn(tools, caller))
    started = [(event.call.name, event.early) for event in events if isinstance(event, ToolStarted)]
    assert started == [("a", True), ("b", True)]
    assert sorted(tools.ran) == [("a", "{}"), ("b", "{}")]
    ids = [event.call.id for event in events if isinstance(event, ToolFinished)]
    assert ids == ["id-0", "id-1"]


def test_independent_calls_of_one_message_run_side_by_side() -> None:
    meeting = threading.Barrier(2)

    def meet(arguments: str, cancel: threading.Event) -> ToolOutcome:
        meeting.wait(PATIENCE_S)  # raises unless the other call is there at the same time
        return ToolOutcome("met", ok=True)

    tools = MadeTools((contract("a"), contract("b")), {"a": meet, "b": meet})
    caller = ScriptedCaller([exchange("", call("a"), call("b", index=1)), exchange("done")])
    outcomes = [event.outcome.text for event in turn(tools, caller) if isinstance(event, ToolFinished)]
    assert outcomes == ["met", "met"]


def test_results_stand_in_call_order_whichever_came_first() -> None:
    second_done = threading.Event()

    def slow(arguments: str, cancel: threading.Event) -> ToolOutcome:
        assert second_done.wait(PATIENCE_S)
        return ToolOutcome("slow", ok=True)

    def quick(arguments: str, cancel: threading.Event) -> ToolOutcome:
        second_done.set()
        return ToolOutcome("quick", ok=True)

    tools = MadeTools((contract("a"), contract("b")), {"a": slow, "b": quick})
    caller = ScriptedCaller([exchange("", call("a"), call("b", index=1)), exchange("done")])
    step = list(turn(tools, caller))[-1].trajectory.turns[1]
    assert isinstance(step, ToolStep)
    assert [result.content for result in step.results] == ["slow", "quick"]


@pytest.mark.parametrize(
    "waits",
    [
        contract("w", Authority.WRITE),
        contract("w", Authority.WRITE, idempotent=False),
        contract("w", idempotent=False),
    ],
)
def test_what_may_change_something_waits_for_the_end_of_the_message_and_so_does_all_behind_it(waits) -> None:
    tools = MadeTools((contract("a"), waits))
    calls = call("a"), call("w", index=1), call("a", '{"x": 1}', index=2)
    caller = ScriptedCaller([exchange("", *calls), exchange("done")], streams={0: written(*calls)})
    events = list(turn(tools, caller))
    started = [(event.call.name, event.early) for event in events if isinstance(event, ToolStarted)]
    assert started == [("a", True), ("w", False), ("a", False)]
    ended = next(place for place, event in enumerate(events) if isinstance(event, CallFinished))
    assert all(
        place > ended
        for place, event in enumerate(events)
        if isinstance(event, ToolStarted) and not event.early
    )


def test_a_writing_call_runs_alone_and_in_its_place() -> None:
    active, together = [], []

    def watched(arguments: str, cancel: threading.Event) -> ToolOutcome:
        active.append(arguments)
        together.append(tuple(active))
        active.remove(arguments)
        return ToolOutcome("", ok=True)

    tools = MadeTools((contract("r"), contract("w", Authority.WRITE)), {"r": watched, "w": watched})
    calls = [
        call("r", '{"x": 1}'),
        call("w", '{"x": 2}', 1),
        call("w", '{"x": 3}', 2),
        call("r", '{"x": 4}', 3),
    ]
    list(turn(tools, ScriptedCaller([exchange("", *calls), exchange("done")])))
    assert [arguments for _, arguments in tools.ran] == [one.arguments for one in calls]
    assert all(len(at_once) == 1 for at_once in together)


class Endless:
    """A tool that runs until it is cancelled."""

    def __init__(self) -> None:
        self.running, self.cancelled = threading.Event(), threading.Event()

    def tool(self, arguments: str, cancel: threading.Event) -> ToolOutcome:
        self.running.set()
        if cancel.wait(PATIENCE_S):
            self.cancelled.set()
        return ToolOutcome("stopped", ok=False)


def test_a_stream_that_fails_cancels_what_started_and_nothing_has_happened() -> None:
    endless = Endless()
    tools = MadeTools((contract("a"),), {"a": endless.tool})
    first = call("a")
    broken = exchange("", first, error=ErrorKind.CUT)
    caller = ScriptedCaller([broken], streams={0: written(first)})
    with pytest.raises(CallFailedError) as failed:
        list(turn(tools, caller))
    assert endless.cancelled.is_set()
    assert [turn.kind.value for turn in failed.value.trajectory.turns] == ["user_turn"]


def test_a_turn_that_is_closed_in_the_stream_cancels_what_started() -> None:
    endless = Endless()
    tools = MadeTools((contract("a"),), {"a": endless.tool})
    first = call("a")
    caller = ScriptedCaller([exchange("", first)], streams={0: written(first, call("a", '{"x": 1}', 1))})
    running = turn(tools, caller)
    while not isinstance(next(running), ToolStarted):
        pass
    assert endless.running.wait(PATIENCE_S)
    running.close()
    assert endless.cancelled.is_set()
    assert caller.started[0].cancelled


def test_a_turn_that_is_closed_while_tools_run_cancels_them() -> None:
    endless = Endless()
    tools = MadeTools((contract("a"), contract("b")), {"a": endless.tool})
    caller = ScriptedCaller([exchange("", call("b"), call("a", index=1))])
    running = turn(tools, caller)
    while not isinstance(next(running), ToolFinished):
        pass
    assert endless.running.wait(PATIENCE_S)
    running.close()
    assert endless.cancelled.is_set()


def test_a_call_that_changed_after_it_was_complete_is_run_as_it_was_at_the_end() -> None:
    tools = MadeTools((contract("a"),))
    last = call("a", '{"x": 2}')
    caller = ScriptedCaller(
        [exchange("", last), exchange("done")], streams={0: written(call("a", '{"x": 1}'))}
    )
    events = list(turn(tools, caller))
    finished = [event.outcome.text for event in events if isinstance(event, ToolFinished)]
    assert finished == ['did {"x": 2}']
    step = events[-1].trajectory.turns[1]
    assert step.calls[0].arguments == '{"x": 2}'


def test_a_call_with_arguments_that_no_tool_takes_never_starts_early() -> None:
    tools = MadeTools((contract("a"),))
    wrong = call("a", '{"y": 1}')
    caller = ScriptedCaller([exchange("", wrong), exchange("done")], streams={0: written(wrong)})
    events = list(turn(tools, caller))
    assert not any(isinstance(event, ToolStarted) for event in events)
    assert tools.ran == []
