"""`ctxlab agent`: one task, done by a served model with tools, every step shown with what it read and reused."""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli.chat import callers
from experiments.cli.console import ERR, OUT, ConsoleProgress, print_json
from experiments.cli.options import (
    BlockSizeOption,
    MaxTokensOption,
    ModelOption,
    PolicyOption,
    ServerOption,
    ThinkingOption,
)
from experiments.cli.signals import ending_on_sigterm

if TYPE_CHECKING:
    from experiments.agent.settings import TurnSettings
    from experiments.agent.tools import GroupName, World
    from experiments.cli.served import Served
    from serving.assembler import ContextPolicy

SYSTEM = (
    "You work on one task with the tools you have. Look before you answer, do not repeat a call whose result "
    "you have, and end with a short answer."
)
DEFAULT_GROUPS = ("files", "directory", "calculator", "todo")


def agent(
    task: Annotated[str, typer.Argument(help="What is to be done, in words.")],
    model: ModelOption = None,
    url: ServerOption = None,
    root: Annotated[Path, typer.Option("--root", help="The folder that the tools work in.")] = Path(),
    tools: Annotated[
        list[str] | None,
        typer.Option(
            "--tools", help=f"A group of tools; may be repeated. Default: {', '.join(DEFAULT_GROUPS)}."
        ),
    ] = None,
    policy: PolicyOption = "default",
    fault: Annotated[
        list[str] | None, typer.Option("--fault", help="Sabotage every request; may be repeated.")
    ] = None,
    system: Annotated[str, typer.Option("--system", help="Another system prompt.")] = SYSTEM,
    max_steps: Annotated[int, typer.Option("--max-steps", min=1, help="Model calls.")] = 12,
    deadline: Annotated[
        float | None, typer.Option("--deadline", min=0.1, help="Seconds for the whole task.")
    ] = None,
    max_tokens: MaxTokensOption = 512,
    thinking: ThinkingOption = None,
    token_in: Annotated[
        bool,
        typer.Option(
            "--token-in", help="Send token ids, so that what was generated is never tokenised again."
        ),
    ] = False,
    block_size: BlockSizeOption = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", help="Write every step into this new folder as it ends, and report.html."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of the trace.")] = False,
) -> None:
    """Let a model work on a task with tools, and see what every step reads, reuses and does.

    Prints what the model thinks, says and calls as it comes, the status bar where the policy has one, what
    the tools answered, and after each call its prompt, cached and new tokens. Tools that only read start
    while the model still writes; one with consequences runs only after a yes at this terminal. Exits with 1
    when no answer came. Ctrl-C stops the model and its tools; complete steps stay in --save, whose report.html
    opens each with its packet, manifest, token ids and times (`ctxlab trajectory` writes it again).

    Examples:

      ctxlab agent "Which log file is the largest?" --root logs --policy status-bar

      ctxlab agent "What does serve.py do?" --url http://127.0.0.1:8000 --save runs/serve --json
    """
    from experiments.agent.saving import require_free
    from experiments.cli.assembly_files import read_policy
    from experiments.cli.served import open_served

    chosen = read_policy(policy)
    names = _known_faults(fault or [])
    world, groups = _world(root, tools or list(DEFAULT_GROUPS))
    if save is not None:
        require_free(save)
    with ExitStack() as stack:
        stack.enter_context(ending_on_sigterm())
        progress = stack.enter_context(ConsoleProgress())
        served = open_served(url, model, block_size, progress, stack)
        settings = _settings(
            served,
            world,
            policy=chosen,
            faults=names,
            max_steps=max_steps,
            deadline=deadline,
            max_tokens=max_tokens,
            token_in=token_in,
        )
        job = Job(task, system, settings, groups, world, names)
        answered = _run(served, job, thinking=thinking, save=save, as_json=as_json)
        progress.begin("end the task")
    if not answered:
        raise typer.Exit(1)


@dataclass(frozen=True)
class Job:
    """One task and all that decides how it is done."""

    task: str
    system: str
    settings: TurnSettings
    groups: tuple[GroupName, ...]
    world: World
    faults: tuple[str, ...]


def _run(served: Served, job: Job, *, thinking: bool | None, save: Path | None, as_json: bool) -> bool:
    from experiments.agent.events import Answer
    from experiments.agent.loop import CallFailedError, run_turn
    from experiments.agent.saving import SavedRun, TrajectoryWriter
    from experiments.agent.tools import build_toolbox
    from experiments.cli.agent_view import AgentView, Report
    from experiments.cli.trajectory import PAGE, write_run_page
    from serving.assembler import Trajectory
    from serving.chat import ChatTokenizer

    toolbox = build_toolbox(job.groups, job.world)
    new_caller, _ = callers(served, thinking, token_in=job.settings.token_in)
    offers = served.template is None or served.template.folder.tool_parser is not None
    start = Trajectory(system=job.system, tools=toolbox.specs if offers else (), turns=())
    view = None if as_json else AgentView(OUT)
    report = Report()
    answered = False
    with ExitStack() as stack:
        writer = None
        if save is not None:
            run = SavedRun(
                task=job.task,
                model=served.name,
                policy=job.settings.policy,
                faults=job.faults,
                started_at=job.settings.now(),
            )
            show = None if served.template is None else ChatTokenizer(served.template.folder.path).show
            writer = TrajectoryWriter(save, run, job.settings.redactor)
            stack.callback(
                write_run_page, save, show
            )  # after the last step is written, however the turn ends
            stack.enter_context(writer)
        turn = stack.enter_context(closing(run_turn(new_caller(), toolbox, start, job.task, job.settings)))
        try:
            for event in turn:
                report.take(event)
                if writer is not None:
                    writer.take(event)
                if view is not None:
                    view.show(event)
                answered = isinstance(event, Answer)
        except CallFailedError:
            if view is not None:
                view.end_line()
            served.check()  # a dead engine is told with its root cause
            raise
    if as_json:
        print_json(report.document())
    else:
        OUT.print(report.line(), style="dim")
        if save is not None:
            OUT.print(f"saved: {save / PAGE}", style="dim", markup=False)
    return answered


def _settings(
    served: Served,
    world: World,
    *,
    policy: ContextPolicy,
    faults: tuple[str, ...],
    max_steps: int,
    deadline: float | None,
    max_tokens: int,
    token_in: bool,
) -> TurnSettings:
    import platform
    from datetime import UTC, datetime
    from uuid import uuid4

    from experiments.agent.settings import Surroundings, TurnSettings
    from experiments.cli.agent_approver import TerminalApprover
    from experiments.cli.assembly_files import faults_for
    from serving.assembler import RequestContext, SystemState
    from serving.call import DecodeOptions

    served.require_room(max_tokens)

    def surroundings() -> Surroundings:
        cwd = None if world.workspace is None else world.workspace.cwd
        system = SystemState(cwd=cwd, os=platform.system(), python=platform.python_version())
        return Surroundings(system, world.todo.items)

    run_id = f"agent-{uuid4().hex}"
    return TurnSettings(
        context=RequestContext(tenant="local", actor="user", now=datetime.now(UTC)),
        window=served.window,
        decode=DecodeOptions(max_tokens=max_tokens),
        salt=run_id,
        policy=policy,
        build_faults=(lambda request: faults_for(faults, request)) if faults else None,
        max_iterations=max_steps,
        deadline_s=deadline,
        clock=lambda: datetime.now(UTC),
        token_in=token_in,
        approver=TerminalApprover(ERR, interactive=sys.stdin.isatty()),
        surroundings=surroundings,
        run_id=run_id,
        surface=served.name,
    )


def _world(root: Path, groups: list[str]) -> tuple[World, tuple[GroupName, ...]]:
    from experiments.agent.settings import SECRETS
    from experiments.agent.tools import GroupName, Workspace, World
    from serving.errors import UsageError

    known = {name.value: name for name in GroupName}
    if wrong := [group for group in groups if group not in known]:
        raise UsageError(f"There is no group of tools {wrong[0]!r}; choose among {', '.join(known)}.")
    return World(workspace=Workspace(root), redactor=SECRETS), tuple(known[group] for group in groups)


def _known_faults(names: list[str]) -> tuple[str, ...]:
    from experiments.faults import FAULTS
    from serving.errors import UsageError

    if wrong := [name for name in names if name not in FAULTS]:
        raise UsageError(f"There is no fault {wrong[0]!r}; choose among {', '.join(FAULTS)}.")
    return tuple(names)
