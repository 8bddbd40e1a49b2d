"""The loop over a served model: both sides agree on every id and on every cached token."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pytest

from experiments.agent.drift import drifts, extension
from experiments.agent.events import Answer, CallFinished, GaveUp, ToolFinished
from experiments.agent.loop import run_turn
from experiments.agent.settings import TurnSettings
from experiments.agent.tokenin import TokenInCaller
from serving.assembler import BarMode, BarPolicy, ContextPolicy, Trajectory
from serving.call import Caller, DecodeOptions, MeasuredCall, StartedCall
from serving.chat import ChatRenderer
from serving.client import Client, ReceivedToolCall, StreamEvent
from serving.explain import MissCause
from serving.models import ensure
from tests.support.made_tools import file_toolbox
from tests.support.scripted import CONTEXT, received


@dataclass
class Replaced:
    """A real call whose answer, noise from random weights, is exchanged for a tool call of the script."""

    started: StartedCall
    calls: tuple[ReceivedToolCall, ...]

    def __post_init__(self) -> None:
        self.packet, self.rendered = self.started.packet, self.started.rendered
        self.prediction = self.started.prediction

    def __iter__(self) -> Iterator[StreamEvent]:
        return iter(self.started)

    def finish(self) -> MeasuredCall:
        measured = self.started.finish()  # strict: raises where the two sides differ
        said = {"text": "" if self.calls else "The end.", "reasoning": "", "tool_calls": self.calls}
        return replace(measured, exchange=measured.exchange.model_copy(update=said))

    def cancel(self):
        return self.started.cancel()


@dataclass
class ReplacingCaller:
    caller: Caller
    script: list[tuple[ReceivedToolCall, ...]]

    def start(self, request, policy, decode, *, salt, faults=()):
        started = self.caller.start(request, policy, decode, salt=salt, faults=faults)
        assert isinstance(started, StartedCall)
        return Replaced(started, self.script.pop(0))


@pytest.mark.live
def test_ids_and_cached_tokens_agree_over_a_tool_loop(live_server, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Notes\n" + "".join(f"Step {n} is done.\n" for n in range(60)))
    script = [
        (received("list_dir", "{}", "one"),),
        (
            received("outline", '{"path":   "notes.md"}', "two"),
            received("grep", '{"pattern": "Step 7 "}', "2b", 1),
        ),
        (received("read_file", '{"path": "nowhere"}', "three"),),
        (),
        (received("head", '{"path": "notes.md", "lines": 40}', "four"),),
        (),
    ]
    tools = file_toolbox(tmp_path)
    model = ensure(live_server.model)
    settings = TurnSettings(
        context=CONTEXT, window=8192, decode=DecodeOptions(max_tokens=5), salt=f"loop-{uuid4().hex}"
    )
    with Client(live_server.base_url) as client:
        caller = ReplacingCaller(Caller(client, model, block_size=live_server.block_size), script)
        trajectory = Trajectory(system="You look into files.", tools=tools.specs, turns=())
        events = []
        for question in ("What is done?", "And then?"):
            events += run_turn(caller, tools, trajectory, question, settings)
            assert isinstance(events[-1], Answer)
            trajectory = events[-1].trajectory
    calls = [event.call for event in events if isinstance(event, CallFinished)]
    assert len(calls) == 6
    assert all(call.ids_agree and call.prediction_agrees for call in calls)
    cached = [call.cached_tokens for call in calls]
    prompts = [len(call.rendered.token_ids) for call in calls]
    block = live_server.block_size
    assert cached[0] == 0
    # Append-only: each call reuses at least every whole block of the prompt before it, but for the generation
    # prompt at its end, which the template writes anew.
    assert all(now >= (before // block - 1) * block for now, before in zip(cached[1:], prompts, strict=False))
    outcomes = [event.outcome.ok for event in events if isinstance(event, ToolFinished)]
    assert outcomes == [True, True, True, False, True]


@pytest.mark.live
@pytest.mark.parametrize("token_in", [False, True], ids=["chat", "token-in"])
@pytest.mark.parametrize("mode", [None, BarMode.APPEND], ids=["no-bar", "bar-appended"])
def test_a_live_run_extends_every_prompt_and_each_answer_but_for_a_named_drift(
    token_in: bool, mode: BarMode | None, live_server, tmp_path: Path
) -> None:
    """Random weights answer with noise, which no template writes back as it came: the hardest answers there are."""
    tools = file_toolbox(tmp_path)
    settings = TurnSettings(
        context=CONTEXT,
        window=8192,
        decode=DecodeOptions(max_tokens=24),
        salt=f"extend-{uuid4().hex}",
        policy=ContextPolicy(status_bar=None if mode is None else BarPolicy(mode=mode)),
        token_in=token_in,
        accept=frozenset(),
    )
    made = TokenInCaller if token_in else Caller
    trajectory, progress = Trajectory(system="Be brief.", tools=tools.specs, turns=()), None
    calls: list[MeasuredCall] = []
    with Client(live_server.base_url) as client:
        # Strict: a difference in ids or in cached tokens raises.
        caller = made(client, ensure(live_server.model), block_size=live_server.block_size)
        for number in range(5):
            for event in run_turn(
                caller, tools, trajectory, f"Question {number}?", settings, progress=progress
            ):
                if isinstance(event, CallFinished):
                    assert isinstance(event.call, MeasuredCall)
                    calls.append(event.call)
            assert isinstance(event, Answer | GaveUp)
            trajectory, progress = event.trajectory, event.progress
    assert len(calls) >= 5
    assert all(call.ids_agree and call.prediction_agrees for call in calls)
    found = [extension(before, now) for before, now in pairwise(calls)]
    assert all(one.of_prompt for one in found)
    assert all(one.of_answer or one.cause not in (None, MissCause.UNKNOWN) for one in found)
    if token_in:
        assert all(one.of_answer for one in found)
        assert drifts(calls) == Counter()
    else:
        assert sum(drifts(calls).values()) == sum(not one.of_answer for one in found)


@pytest.mark.live
@pytest.mark.parametrize("strict", [False, True], ids=["any-arguments", "strict"])
@pytest.mark.parametrize("token_in", [False, True], ids=["chat", "token-in"])
def test_a_required_call_is_one_in_both_surfaces_even_from_random_weights(
    token_in: bool, strict: bool, live_server, tmp_path: Path
) -> None:
    tools = file_toolbox(tmp_path)
    settings = TurnSettings(
        context=CONTEXT,
        window=8192,
        decode=DecodeOptions(
            max_tokens=48, tool_choice="required", parallel_tool_calls=False, strict_arguments=strict
        ),
        salt=f"required-{uuid4().hex}",
        token_in=token_in,
        max_iterations=2,
    )
    made = TokenInCaller if token_in else Caller
    trajectory = Trajectory(system="Be brief.", tools=tools.specs, turns=())
    folder = ensure(live_server.model)
    tokenizer = ChatRenderer(folder.path).tokenizer
    with Client(live_server.base_url) as client:
        # A grammar holds only what follows the reasoning, and noise never ends that.
        thinking = {"enable_thinking": False}
        caller = made(client, folder, block_size=live_server.block_size, template_kwargs=thinking)
        events = list(run_turn(caller, tools, trajectory, "What is here?", settings))
    answers = [
        tokenizer.decode(event.call.exchange.output_token_ids)
        for event in events
        if isinstance(event, CallFinished) and isinstance(event.call, MeasuredCall)
    ]
    assert answers
    names = "|".join(spec.name for spec in tools.specs)
    # The server's own tag may leave the line break out; arguments are any JSON, and noise is cut off in them.
    assert all(re.match(rf'<tool_call>\n?{{"name": "({names})", "arguments": ', said) for said in answers)
    if strict:
        fields = "|".join(name for spec in tools.specs for name in spec.parameters["properties"])
        assert all(re.search(rf'"arguments": \{{\s*("({fields})"|\}}|$)', said) for said in answers)
