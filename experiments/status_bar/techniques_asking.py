"""One task, worked on: the loop around it, a clock that runs a minute a message, and a bar of the arm's techniques."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from experiments.agent.approval import Approval, ApprovalRequest
from experiments.agent.collected import CollectedTurn, collect
from experiments.agent.loop import run_turn
from experiments.agent.protocols import ModelCaller, Started
from experiments.agent.rebuilding import RebuildingCaller
from experiments.agent.settings import TurnSettings
from experiments.agent.tools import FINISH, SimulatedClock
from experiments.status_bar.techniques_design import policy_of, system_prompt
from experiments.status_bar.techniques_tasks import BarTask
from experiments.status_bar.techniques_world import (
    TaskGrade,
    grade,
    offered_tools,
    open_world,
    surroundings,
)
from serving.assembler import (
    AssemblyRequest,
    ContextPolicy,
    Fault,
    HandOff,
    RequestContext,
    Trajectory,
)
from serving.assembler.status_bar import Technique
from serving.call import DecodeOptions

A_MESSAGE: Final = timedelta(minutes=1)
"""What the simulated clock advances by with every model call."""

MAX_SAME_CALLS: Final = 4
"""More than any limit of calls, so that a limit is the model's to keep and not the loop's."""


@dataclass
class TickingCaller:
    """The calls of one task: each takes its minute."""

    caller: ModelCaller
    clock: SimulatedClock

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
        self.clock.advance(A_MESSAGE)
        return self.caller.start(request, policy, decode, salt=salt, faults=faults)


@dataclass(frozen=True)
class EveryCallApproved:
    """Approves each exact call: the telephone of these tasks rings nowhere, and its limit is the model's to keep."""

    clock: SimulatedClock

    def decide(self, request: ApprovalRequest) -> Approval:
        """Yes."""
        return Approval(
            call_sha256=request.call_sha256,
            approved=True,
            by="the study: nobody is called",
            at=self.clock.now,
        )


@dataclass(frozen=True)
class Asking:
    """How every task is asked."""

    window: int
    """Tokens that the server really serves."""
    decode: DecodeOptions
    """Of each message."""
    max_iterations: int
    salt: str
    surface: str
    rebuild: bool


@dataclass(frozen=True)
class Worked:
    """A task that came to its end."""

    turn: CollectedTurn
    grade: TaskGrade


def work_on(task: BarTask, on: frozenset[Technique], caller: ModelCaller, asking: Asking) -> Worked:
    """Let a model work on a task in a folder of its own, and grade what is left there; raises as `run_turn`."""
    with TemporaryDirectory(prefix="ctxlab-task-") as root:
        world = open_world(task, Path(root))
        tools = offered_tools(world)
        settings = TurnSettings(
            context=RequestContext(tenant="lab", actor="study", now=task.asked_at),
            window=asking.window,
            decode=asking.decode,
            salt=asking.salt,
            policy=policy_of(on),
            max_iterations=asking.max_iterations,
            clock=lambda: world.clock.now,
            finish=FINISH,
            max_same_calls=MAX_SAME_CALLS,
            approver=EveryCallApproved(world.clock),
            surroundings=lambda: surroundings(task, world),
            run_id=f"{task.kind}-{task.variant}-{task.seed}",
            surface=asking.surface,
        )
        start = Trajectory(system=system_prompt(on), tools=tools.specs, turns=())
        ticking = TickingCaller(RebuildingCaller(caller) if asking.rebuild else caller, world.clock)
        turn = collect(run_turn(ticking, tools, start, task.text, settings))
        return Worked(turn, grade(task, world))
