"""One prompt, asked: the tools and the loop around it, and how an arm changes what is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from experiments.agent.collected import CollectedTurn, collect
from experiments.agent.loop import run_turn
from experiments.agent.protocols import ModelCaller, Started
from experiments.agent.settings import TurnSettings
from experiments.agent.tools import Workspace, World
from experiments.workloads.tool_prompt_files import write_trips
from experiments.workloads.tool_prompts import SYSTEM, ToolPrompt, offered_tools
from serving.assembler import (
    AssemblyRequest,
    ContextPolicy,
    Fault,
    HandOff,
    RequestContext,
    Trajectory,
)
from serving.call import DecodeOptions

BEGIN: Final = datetime(2026, 1, 15, 9, 0, tzinfo=UTC)
"""When every prompt is asked; nothing of it reaches the prompt."""


class FirstChoice(StrEnum):
    """Whether the first model call of a turn has to call a tool."""

    AUTO = "auto"
    REQUIRED = "required"
    """The first call only: a server that requires a call in every message leaves a model no way to stop."""


@dataclass
class SteeredCaller:
    """The calls of one turn, with the arm's tool choice in the first."""

    caller: ModelCaller
    choice: FirstChoice
    _started: int = field(default=0, init=False)

    def start(
        self,
        request: AssemblyRequest,
        policy: ContextPolicy,
        decode: DecodeOptions,
        *,
        salt: str,
        faults: Sequence[Fault] = (),
    ) -> Started | HandOff:
        """As the caller's."""
        first, self._started = self._started == 0, self._started + 1
        if first and self.choice is FirstChoice.REQUIRED:
            decode = decode.model_copy(update={"tool_choice": self.choice.value})
        return self.caller.start(request, policy, decode, salt=salt, faults=faults)


@dataclass(frozen=True)
class Asking:
    """How every prompt of a trial is asked."""

    window: int
    """Tokens that the server really serves."""
    max_tokens: int
    max_iterations: int
    salt: str
    surface: str
    interpreter: bool
    """Whether `run_python` is among the tools."""


def ask(prompt: ToolPrompt, caller: ModelCaller, asking: Asking) -> CollectedTurn:
    """Let a model work on one prompt, in a folder of its own; raises what `run_turn` raises."""
    with TemporaryDirectory(prefix="ctxlab-trips-") as root:
        write_trips(Path(root))
        tools = offered_tools(World(workspace=Workspace(Path(root))), interpreter=asking.interpreter)
        settings = TurnSettings(
            context=RequestContext(tenant="lab", actor="study", now=BEGIN),
            window=asking.window,
            decode=DecodeOptions(max_tokens=asking.max_tokens, tool_choice="auto"),
            salt=asking.salt,
            max_iterations=asking.max_iterations,
            max_empty=0,  # whether it stops with an answer is what is asked
            run_id=f"{prompt.kind}-{prompt.seed}",
            surface=asking.surface,
        )
        start = Trajectory(system=SYSTEM, tools=tools.specs, turns=())
        return collect(run_turn(caller, tools, start, prompt.text, settings))
