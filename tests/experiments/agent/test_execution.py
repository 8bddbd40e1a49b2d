"""Retries, postconditions, deadlines, and what is kept of a result."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from experiments.agent.events import Answer, CallFinished, GaveUp, GaveUpReason, ToolFinished
from experiments.agent.execution import Execution, RetryPolicy, RunningTool
from experiments.agent.loop import run_turn
from experiments.agent.settings import TurnSettings
from experiments.agent.tools import Failure, ToolOutcome
from serving.assembler import Authority, BarPolicy, ContextPolicy, Observation, ToolCall, Trajectory
from serving.call import DecodeOptions
from serving.client import StreamEvent, TextDelta
from serving.stores import ArtifactStore, EventKind, EventQueue, HarnessEvent
from tests.support.made_tools import MadeTools, contract
from tests.support.scripted import CONTEXT, ScriptedCaller, exchange, received

CALL = ToolCall(id="1", name="a", arguments="{}")
AT_ONCE = RetryPolicy(retries=2, wait_s=0)
# Built at run time, so that no scanner takes this file for a leak.
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def failing(times: int, kind: Failure) -> MadeTools:
    left = iter(range(times))

    def run(arguments: str, cancel: threading.Event) -> ToolOutcome:
        return ToolOutcome("no", False, kind) if next(left, None) is not None else ToolOutcome("yes", ok=True)

    return MadeTools((contract("a"),), {"a": run})


@pytest.mark.parametrize(
    ("failures", "kind", "idempotent", "attempts", "error"),
    [
        (0, Failure.ISOLATION, True, 1, None),
        (2, Failure.ISOLATION, True, 3, None),
        (3, Failure.ISOLATION, True, 3, "isolation"),
        (1, Failure.ISOLATION, False, 1, "isolation"),
        (1, Failure.NOT_FOUND, True, 1, "not_found"),
    ],
)
def test_only_a_passing_failure_of_an_idempotent_tool_is_tried_again(
    failures: int, kind: Failure, idempotent: bool, attempts: int, error: str | None
) -> None:
    execution = Execution(failing(failures, kind), AT_ONCE)
    done = execution.run(CALL, contract("a", idempotent=idempotent), threading.Event())
    assert (done.attempts, done.error_class) == (attempts, error)


def test_a_cancelled_call_is_not_tried_again() -> None:
    cancel = threading.Event()
    cancel.set()
    done = Execution(failing(5, Failure.ISOLATION), RetryPolicy(wait_s=60)).run(CALL, contract("a"), cancel)
    assert (done.attempts, done.error_class) == (1, "cancelled")


def test_a_run_whose_postcondition_does_not_hold_has_failed_and_is_not_repeated() -> None:
    tools = MadeTools((contract("a", Authority.WRITE),))
    execution = Execution(tools, AT_ONCE, {"a": lambda call, outcome: "the file is not there."})
    done = execution.run(CALL, tools.contracts[0], threading.Event())
    assert (done.outcome.ok, done.error_class, len(tools.ran)) == (False, "postcondition", 1)
    assert "the file is not there." in done.outcome.text


def test_a_tool_that_raises_is_a_defect_and_is_not_hidden() -> None:
    def broken(arguments: str, cancel: threading.Event) -> ToolOutcome:
        raise ZeroDivisionError

    running = RunningTool(Execution(MadeTools((), {"a": broken})), CALL, contract("a"))
    with pytest.raises(ZeroDivisionError):
        running.wait()


def play(tools: MadeTools, caller: ScriptedCaller, **more: object):
    settings = TurnSettings(
        **{"context": CONTEXT, "window": 9000, "decode": DecodeOptions(max_tokens=99), "salt": "s", **more}
    )
    return list(run_turn(caller, tools, Trajectory(tools=tools.specs, turns=()), "Go.", settings))


def saying(text: str) -> MadeTools:
    return MadeTools((contract("a"),), {"a": lambda arguments, cancel: ToolOutcome(text, ok=True)})


def one_call(*more: str) -> ScriptedCaller:
    return ScriptedCaller([exchange("", received("a", "{}")), exchange("done")])


def test_a_secret_in_a_result_is_neither_sent_nor_stored(tmp_path: Path) -> None:
    for artifacts in (None, ArtifactStore(tmp_path)):
        caller = one_call()
        events = play(
            saying(f"token {SECRET} here " + "x" * 200), caller, artifacts=artifacts, longest_result=100
        )
        answer = events[-1]
        assert isinstance(answer, Answer)
        stored = answer.trajectory.turns[1].results[0]
        assert caller.started[1].packet.messages[-1].content == stored.content
        assert SECRET not in answer.trajectory.model_dump_json()
        if artifacts is not None:
            kept = artifacts.get(stored.artifact_ref or "").decode()
            assert "[redacted:github_token]" in kept and SECRET not in kept


def test_a_secret_that_the_model_writes_is_cut_from_what_is_kept_and_run() -> None:
    tools = MadeTools((contract("a"),))
    reply = exchange(f"I use {SECRET}.", received("a", f'{{"x": "{SECRET}"}}'))
    caller = ScriptedCaller([reply, exchange("done")])
    events = play(tools, caller)
    finished = next(event for event in events if isinstance(event, CallFinished))
    assert finished.cut == ("github_token",)
    assert SECRET not in events[-1].trajectory.model_dump_json()
    assert SECRET not in str([start.packet.messages for start in caller.started])


@pytest.mark.parametrize("filler", ["x", "<", "é", "\n"])
def test_a_large_result_goes_to_the_store_and_the_model_reads_an_observation(
    filler: str, tmp_path: Path
) -> None:
    text = "begin " + filler * 9_000 + " end"
    store = ArtifactStore(tmp_path)
    events = play(saying(text), one_call(), artifacts=store)
    (result,) = events[-1].trajectory.turns[1].results
    observation = Observation.read(result.content)
    assert observation.verified["characters"] == len(text)
    assert str(observation.verified["head"]).startswith("begin")
    assert store.get(result.artifact_ref or "").decode() == text


class Clock:
    """Moves on by a second at every look."""

    def __init__(self) -> None:
        self.now = CONTEXT.now
        self.lock = threading.Lock()

    def __call__(self) -> datetime:
        with self.lock:
            self.now += timedelta(seconds=1)
            return self.now


def test_a_turn_whose_time_is_over_ends_with_its_complete_steps() -> None:
    tools = MadeTools((contract("a"),))
    replies = [exchange("", received("a", f'{{"x": {n}}}', f"c{n}")) for n in range(50)]
    events = play(tools, ScriptedCaller(replies), clock=Clock(), deadline_s=40, max_iterations=50)
    ended = events[-1]
    assert isinstance(ended, GaveUp)
    assert ended.reason is GaveUpReason.DEADLINE
    assert 1 < len(ended.trajectory.turns) < 50
    assert all(turn.open_calls == () for turn in ended.trajectory.turns[1:])


def test_a_stream_that_outlasts_the_deadline_is_cancelled() -> None:
    def stream() -> Iterator[StreamEvent]:
        while True:
            yield TextDelta(1, "and on ", None)

    caller = ScriptedCaller([exchange("never read")], streams={0: stream()})
    events = play(MadeTools(()), caller, clock=Clock(), deadline_s=20)
    assert isinstance(events[-1], GaveUp)
    assert events[-1].reason is GaveUpReason.DEADLINE
    assert caller.started[0].cancelled


def test_a_tool_that_outlasts_the_deadline_is_cancelled_and_its_step_is_complete() -> None:
    def endless(arguments: str, cancel: threading.Event) -> ToolOutcome:
        assert cancel.wait(30)
        return ToolOutcome("stopped", ok=False)

    tools = MadeTools((contract("a"),), {"a": endless})
    events = play(tools, one_call(), clock=Clock(), deadline_s=20)
    finished = next(event for event in events if isinstance(event, ToolFinished))
    assert not finished.outcome.ok
    assert isinstance(events[-1], GaveUp)
    assert events[-1].trajectory.turns[1].results[0].content == "stopped"


def test_the_status_bar_counts_calls_and_names_failures() -> None:
    tools = MadeTools((contract("a"),), {"a": lambda a, c: ToolOutcome("no", False, Failure.NOT_FOUND)})
    caller = one_call()
    play(tools, caller, policy=ContextPolicy(status_bar=BarPolicy()), clock=Clock())
    bar = caller.started[1].packet.messages[-1].content or ""
    assert 'calls of "a": 1' in bar
    assert 'error in "a" ("call-a"): "not_found"' in bar


def test_an_event_of_the_harness_stands_at_the_end_of_the_next_request_and_stays(tmp_path: Path) -> None:
    queue = EventQueue(tmp_path / "events.sqlite")

    def change(arguments: str, cancel: threading.Event) -> ToolOutcome:
        queue.push(HarnessEvent(kind=EventKind.FILE_CHANGED, at=CONTEXT.now, facts={"path": "a.txt"}))
        return ToolOutcome("ok", ok=True)

    tools = MadeTools((contract("a"), contract("b")), {"a": change})
    caller = ScriptedCaller(
        [exchange("", received("a", "{}", "1")), exchange("", received("b", "{}", "2")), exchange("done")]
    )
    play(tools, caller, events=queue)
    sent = [start.packet.messages for start in caller.started]
    texts = ["\n".join(message.content or "" for message in messages) for messages in sent]
    assert [text.count("A file was changed") for text in texts] == [0, 1, 1]
    assert sent[2][: len(sent[1])] == sent[1]
