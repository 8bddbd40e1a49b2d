"""The right turns of the tool prompts, scripted: real tools run, words and thoughts are fixed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from experiments.agent.tools import Toolbox, Workspace, World
from experiments.workloads.tool_prompt_calls import ExpectedCall
from experiments.workloads.tool_prompt_files import write_trips
from experiments.workloads.tool_prompts import SYSTEM, PromptClass, ToolPrompt, offered_tools, tool_prompt
from serving.assembler import AssistantTurn, ToolCall, ToolResult, ToolStep, Trajectory, Turn, UserTurn

FOLLOW_UP: Final = "Thank you. Which of these results came first?"
"""A question after everything: here a template that takes reasoning out of the history has done so."""


def right_turn(prompt: ToolPrompt, *, thinking: bool, interpreter: bool) -> Trajectory:
    """One prompt with exactly the calls that it needs and an answer; `interpreter`: whether its tool is offered."""
    with TemporaryDirectory(prefix="ctxlab-trips-") as root:
        tools = offered_in(Path(root), interpreter=interpreter)
        turns = (UserTurn(text=prompt.text), *_worked(prompt, tools, thinking=thinking, first=0))
        return Trajectory(system=SYSTEM, tools=tools.specs, turns=turns)


def conversation(seed: int, *, thinking: bool) -> Trajectory:
    """Six model calls: a chain of two calls and its answer, parallel calls and their answer, and a last question."""
    turns: list[Turn] = []
    with TemporaryDirectory(prefix="ctxlab-trips-") as root:
        tools = offered_in(Path(root), interpreter=False)
        for kind in (PromptClass.CHAINED, PromptClass.PARALLEL):
            prompt = tool_prompt(kind, seed)
            turns.append(UserTurn(text=prompt.text))
            turns += _worked(prompt, tools, thinking=thinking, first=len(turns))
        return Trajectory(system=SYSTEM, tools=tools.specs, turns=(*turns, UserTurn(text=FOLLOW_UP)))


def offered_in(root: Path, *, interpreter: bool) -> Toolbox:
    """The tools of every prompt, over the trips' files in a folder."""
    write_trips(root)
    return offered_tools(World(workspace=Workspace(root)), interpreter=interpreter)


def _worked(
    prompt: ToolPrompt, tools: Toolbox, *, thinking: bool, first: int
) -> Iterator[ToolStep | AssistantTurn]:
    """The steps of a prompt: one message a call where each needs the result before it, else one for all."""
    messages: list[Sequence[ExpectedCall]] = (
        [(call,) for call in prompt.calls] if prompt.ordered else [prompt.calls] if prompt.calls else []
    )
    last = ""
    for number, expected in enumerate(messages):
        step = step_of(expected, tools, number=number, first=first, thinking=thinking)
        last = step.results[-1].content
        yield step
    told = last.splitlines()[0] if last else "nothing was needed"
    yield AssistantTurn(
        text=f"According to the tools: {told}",
        reasoning="Every result that the question needs is here, so I can answer." if thinking else None,
    )


def step_of(
    expected: Sequence[ExpectedCall], tools: Toolbox, *, number: int, first: int, thinking: bool
) -> ToolStep:
    """One message with these calls, and what the tools answer; `number` and `first` make its ids its own."""
    calls = tuple(_call(one, f"{first:02d}{number}{place:02d}") for place, one in enumerate(expected))
    results = tuple(
        ToolResult(call_id=call.id, content=_result(tools, call, one))
        for call, one in zip(calls, expected, strict=True)
    )
    names = " and ".join(call.name for call in calls)
    thought = f"Step {number + 1} of this question needs {names}; I have the arguments, so I call now."
    return ToolStep(calls=calls, results=results, reasoning=thought if thinking else None)


def _call(expected: ExpectedCall, number: str) -> ToolCall:
    arguments = expected.arguments
    if expected.prints is not None:
        arguments = {"code": f"print({expected.prints!r})"}
    # Nine letters and digits: the one form of an id that no family's template refuses.
    return ToolCall(id=f"call{number}", name=expected.name, arguments=json.dumps(arguments))


def _result(tools: Toolbox, call: ToolCall, expected: ExpectedCall) -> str:
    return tools.run(call.name, call.arguments).text if expected.prints is None else expected.prints
