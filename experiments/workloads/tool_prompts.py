"""Scripted prompts for tool calling in five classes, each with the calls that a right answer needs.

What is expected is computed from the tools' own tables, so the second call of a chain is known before the first
is made. All prompts share one system prompt and one set of tools: their heads are the same tokens.
"""

from __future__ import annotations

from typing import Final

from experiments.agent.tools import GroupName, Toolbox, World, build_toolbox
from experiments.workloads.scenario import draws
from experiments.workloads.tool_prompt_calls import (
    CALCULATE,
    CONVERT,
    GET_TIME,
    GET_WEATHER,
    READ_FILE,
    RUN_PYTHON,
    ExpectedCall,
)
from experiments.workloads.tool_prompt_texts import WRITERS, PromptClass
from serving.assembler.record import Record
from serving.errors import UsageError

__all__ = ["OFFERED", "SYSTEM", "ExpectedCall", "PromptClass", "ToolPrompt", "offered_tools", "tool_prompt"]

SYSTEM: Final = (
    "You are an assistant with tools. Use a tool whenever the answer depends on the time, the weather, exchange "
    "rates, arithmetic, a file or what a program prints; otherwise answer yourself. Make calls that do not depend "
    "on each other in one message. Never repeat a call. When you know enough, answer in one sentence."
)

OFFERED: Final = (READ_FILE, GET_TIME, GET_WEATHER, CONVERT, CALCULATE, RUN_PYTHON)
"""The tools of every prompt, in this order; the last only where programs can be isolated."""


class ToolPrompt(Record):
    """A question, and what a model that uses its tools well does about it."""

    kind: PromptClass
    seed: int
    text: str
    calls: tuple[ExpectedCall, ...]
    ordered: bool
    """Whether each call has to wait for the result of the one before."""
    fails: bool
    """Whether the last expected call fails, so that nothing can be told but that it did."""

    @property
    def needs_isolation(self) -> bool:
        """Whether it can be asked only where programs are isolated."""
        return any(call.name == RUN_PYTHON for call in self.calls)


def tool_prompt(kind: PromptClass, seed: int) -> ToolPrompt:
    """The prompt of a class and a seed; seeds 0 to 119 of a class give different texts.

    Raises: UsageError for a negative seed.
    """
    if seed < 0:
        raise UsageError(f"Expected a seed of 0 or more for a tool prompt, got {seed}.")
    writers = WRITERS[kind]
    written = writers[seed % len(writers)](seed // len(writers), draws(f"tool-prompt/{kind}", seed))
    return ToolPrompt(
        kind=kind,
        seed=seed,
        text=written.text,
        calls=written.calls,
        ordered=kind in (PromptClass.CHAINED, PromptClass.TOOL_ERROR),
        fails=written.fails,
    )


def offered_tools(world: World, *, interpreter: bool) -> Toolbox:
    """The tools that every prompt offers.

    Raises: NoIsolationError where `interpreter` is asked for and this machine cannot isolate one; UsageError for
    a world without a workspace.
    """
    groups = [GroupName.FILES, GroupName.CLOCK, GroupName.WEATHER, GroupName.CURRENCY, GroupName.CALCULATOR]
    if interpreter:
        groups.append(GroupName.PYTHON)
    built = {tool.name: tool for tool in build_toolbox(groups, world).tools}
    return Toolbox(built[name] for name in OFFERED if name in built)
