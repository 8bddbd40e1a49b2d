"""The loop over a stream as it comes from a socket: what runs before the message is complete, and side by side."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from experiments.agent.events import Answer, ToolStarted
from experiments.agent.loop import run_turn
from experiments.agent.settings import TurnSettings
from experiments.agent.tools import ToolOutcome
from experiments.agent.unmeasured import UnmeasuredCaller
from serving.assembler import Trajectory
from serving.call import DecodeOptions
from serving.client import Client
from serving.errors import UsageError
from tests.support.made_tools import MadeTools, contract
from tests.support.scripted import CONTEXT
from tests.support.scripts import Json, chunk
from tests.support.told_server import called, saying, told_server

PATIENCE_S = 30


def test_the_first_tool_starts_before_the_second_call_is_sent_and_two_of_one_second_overlap() -> None:
    began = threading.Event()
    intervals: dict[str, tuple[float, float]] = {}
    sent: list[float] = []

    def one_second(arguments: str, cancel: threading.Event) -> ToolOutcome:
        start = time.monotonic()
        began.set()
        cancel.wait(1)
        intervals[arguments] = (start, time.monotonic())
        return ToolOutcome("done", ok=True)

    def two_calls() -> Iterator[Json]:
        first, second = '{"x": 1}', '{"x": 2}'
        yield from called(0, "a", first)
        assert began.wait(PATIENCE_S), "the first tool waits for the end of the message"
        *rest, last = called(1, "b", second)
        yield from rest
        sent.append(time.monotonic())
        yield last
        yield chunk({}, finish="tool_calls")

    tools = MadeTools((contract("a"), contract("b")), {"a": one_second, "b": one_second})
    settings = TurnSettings(
        context=CONTEXT, window=9_000, decode=DecodeOptions(max_tokens=50), salt="s", accept=frozenset()
    )
    start = Trajectory(tools=tools.specs, turns=())
    with told_server([two_calls, saying("Both.")]) as told, Client(told.url) as client:
        events = list(run_turn(UnmeasuredCaller(client, "told"), tools, start, "Go.", settings))
    assert isinstance(events[-1], Answer)
    assert [event.early for event in events if isinstance(event, ToolStarted)] == [True, True]
    first, second = intervals['{"x": 1}'], intervals['{"x": 2}']
    assert first[0] < sent[0] < second[0]
    assert second[0] < first[1], "the second tool waited for the first"


@pytest.mark.parametrize("options", [{"strict_arguments": True}, {"choices": ("yes", "no")}])
def test_a_server_known_by_its_url_alone_is_not_asked_for_what_only_vllm_can_hold_a_model_to(
    options: dict[str, object],
) -> None:
    decode = DecodeOptions.model_validate({"max_tokens": 50, "tool_choice": "required", **options})
    settings = TurnSettings(context=CONTEXT, window=9_000, decode=decode, salt="s", accept=frozenset())
    tools = MadeTools((contract("a"),), {})
    start = Trajectory(tools=tools.specs, turns=())
    with told_server([saying("Never asked.")]) as told, Client(told.url) as client:
        with pytest.raises(UsageError, match="only vLLM"):
            list(run_turn(UnmeasuredCaller(client, "told"), tools, start, "Go.", settings))
        assert not told.bodies
