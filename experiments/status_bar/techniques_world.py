"""The world of one task: its folder, clock and telephone, what a bar shows of it, and the grade of how it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from experiments.agent.settings import Surroundings
from experiments.agent.tools import (
    FINISH,
    GroupName,
    Phone,
    SimulatedClock,
    Toolbox,
    Workspace,
    World,
    build_toolbox,
    finish_tool,
)
from experiments.agent.tools.folder import Folder
from experiments.agent.tools.outcome import ToolError
from experiments.status_bar.techniques_tasks import BarTask, Work
from serving.assembler import SystemState, TodoItem
from serving.assembler.record import Record
from serving.assembler.status_state import TodoStatus

CALL: Final = "make_call"
OFFERED: Final = (
    "read_file",
    "find_files",
    "list_dir",
    "write_file",
    "current_directory",
    "get_time",
    CALL,
    FINISH,
)
"""The tools of every task and arm."""
_GROUPS: Final = (
    GroupName.FILES,
    GroupName.CHANGES,
    GroupName.DIRECTORY,
    GroupName.CLOCK,
    GroupName.PHONE,
)


class TaskGrade(Record):
    """What the final state of a task's world comes to."""

    subtasks: int
    missed: tuple[str, ...]
    """Files without a right text, and `make_call` where fewer calls were made than needed."""
    spoiled: tuple[str, ...]
    """Given files that are not as they were, and files of the answer that is not true."""
    dialled: int
    violations: int | None
    """Calls beyond the limit; None where there is no limit."""

    @property
    def succeeded(self) -> bool:
        """Whether everything was done, within the limit, and nothing spoiled."""
        return not self.missed and not self.spoiled and not self.violations


def open_world(task: BarTask, root: Path) -> World:
    """Lay the task's files out below `root`, an empty folder, and stand where the task says."""
    place = root / task.directory
    place.mkdir(parents=True)
    for path, text in task.files:
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text, encoding="utf-8")
    workspace = Workspace(root)
    workspace.change(task.directory)
    return World(
        workspace=workspace,
        clock=SimulatedClock(task.asked_at),
        phone=Phone({}) if task.phone is None else Phone({task.phone.number: task.phone.answers}),
    )


def offered_tools(world: World) -> Toolbox:
    """The same tools in the same order, whatever the task."""
    built = {tool.name: tool for tool in (*build_toolbox(_GROUPS, world).tools, finish_tool())}
    return Toolbox(built[name] for name in OFFERED)


def surroundings(task: BarTask, world: World) -> Surroundings:
    """What code knows of the world before a request.

    An item is done as soon as one of its files is there, whatever stands in it: code that looked closer would be
    the grader, and would tell the model its mark.
    """
    folder = _folder(world)
    return Surroundings(
        system=SystemState(  # noqa: S604 - `shell` is a word of the bar here
            cwd=f"/{task.directory}",
            os="linux",
            # The tools of these tasks have neither.
            shell="none",
            python="none",
        ),
        todo=tuple(
            TodoItem(id=str(number), text=work.text, status=_status(work, folder))
            for number, work in enumerate(task.work, 1)
        ),
        call_limits={} if task.phone is None else {CALL: task.phone.limit},
    )


def grade(task: BarTask, world: World) -> TaskGrade:
    """Grade the final state by what is in the folder and what the telephone recorded; no word of the model counts."""
    folder = _folder(world)
    missed = [
        wanted.path
        for wanted in task.wanted
        if (text := _text(folder, wanted.path)) is None
        or _bare(text) not in {_bare(accepted) for accepted in wanted.accepted}
    ]
    spoiled = [path for path, text in task.files if _text(folder, path) != text]
    spoiled += [path for path in task.unwanted if _is_there(folder, path)]
    dialled = len(world.phone.calls)
    if task.phone is not None and dialled < task.phone.needed:
        missed.append(CALL)
    return TaskGrade(
        subtasks=len(task.wanted) + (task.phone is not None),
        missed=tuple(missed),
        spoiled=tuple(spoiled),
        dialled=dialled,
        violations=None if task.phone is None else max(0, dialled - task.phone.limit),
    )


def _folder(world: World) -> Folder:
    if world.workspace is None:
        raise AssertionError("open_world gives every world a workspace")
    return world.workspace.folder()


def _status(work: Work, folder: Folder) -> TodoStatus:
    done = any(_is_there(folder, path) for path in work.paths)
    return TodoStatus.COMPLETED if done else TodoStatus.PENDING


def _is_there(folder: Folder, path: str) -> bool:
    try:
        folder.entry(path)
    except ToolError:
        return False
    return True


def _text(folder: Folder, path: str) -> str | None:
    """None where there is no text file: a folder, a link or bytes are none."""
    try:
        return folder.read(path)
    except ToolError:
        return None


def _bare(text: str) -> str:
    """Without what a writer may add in good faith: space around it, quotes, a full stop, a path's last slash."""
    bare = text.strip().strip("`\"'").removesuffix(".").strip("`\"'")
    return bare.removesuffix("/") if len(bare) > 1 else bare
