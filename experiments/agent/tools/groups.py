"""The one place where tools are registered: a group of tools, its file, and what of the run it acts on.

To add a tool: write it into the file of its group, or a new file beside it with a function that returns `Tool`s;
a new group gets a name in `GroupName` and a line in `_GROUPS`, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from experiments.agent.tools.calculator import calculator_tools
from experiments.agent.tools.changes import change_tools
from experiments.agent.tools.clock import SimulatedClock, clock_tools
from experiments.agent.tools.currency import currency_tools
from experiments.agent.tools.directory import directory_tools
from experiments.agent.tools.files import file_tools
from experiments.agent.tools.interpreter import interpreter_tools
from experiments.agent.tools.pages import PAGES, Page
from experiments.agent.tools.phone import Phone, phone_tools
from experiments.agent.tools.sandbox import Limits, isolation
from experiments.agent.tools.todo import TodoList, todo_tools
from experiments.agent.tools.tool import Tool
from experiments.agent.tools.toolbox import Toolbox
from experiments.agent.tools.weather import weather_tools
from experiments.agent.tools.web import web_tools
from experiments.agent.tools.workspace import Workspace
from serving.errors import UsageError
from serving.redact import Redactor


class GroupName(StrEnum):
    """The groups in the order in which their tools are told to a model."""

    FILES = "files"
    CHANGES = "changes"
    DIRECTORY = "directory"
    CLOCK = "clock"
    WEATHER = "weather"
    CURRENCY = "currency"
    CALCULATOR = "calculator"
    PHONE = "phone"
    WEB = "web"
    TODO = "todo"
    PYTHON = "python"


@dataclass(frozen=True, slots=True)
class World:
    """What the tools of one run act on: given by the scenario, changed by the tools, of one run alone."""

    workspace: Workspace | None = None
    """None: no tool that reads or writes files."""
    clock: SimulatedClock = field(default_factory=SimulatedClock)
    phone: Phone = field(default_factory=Phone)
    todo: TodoList = field(default_factory=TodoList)
    pages: tuple[Page, ...] = PAGES
    limits: Limits = field(default_factory=Limits)
    """Of programs that the model writes."""
    redactor: Redactor | None = None
    """Takes secrets out of files, pages and output before a tool cuts them into lines and excerpts; the loop's own
    redactor (`TurnSettings.redactor`) reads results, in which a cut secret is not found any more."""

    def clean(self, text: str) -> str:
        """The text as tools may show parts of it."""
        return text if self.redactor is None else self.redactor.redact(text).text


def build_toolbox(groups: Collection[GroupName], world: World | None = None) -> Toolbox:
    """The tools of some groups, in the order of `GroupName` whatever the order of `groups`.

    Raises `UsageError` for a group of file tools without a workspace, and `NoIsolationError` for the interpreter
    on a machine that cannot isolate it.
    """
    acted_on = world or World()
    return Toolbox(tool for name in GroupName if name in groups for tool in _GROUPS[name](acted_on))


def _workspace(world: World) -> Workspace:
    if world.workspace is None:
        raise UsageError(
            "Expected a workspace for tools that work on files, got none: give the world a root."
        )
    return world.workspace


_GROUPS: Final[Mapping[GroupName, Callable[[World], tuple[Tool, ...]]]] = MappingProxyType(
    {
        GroupName.FILES: lambda world: file_tools(_workspace(world), world.clean),
        GroupName.CHANGES: lambda world: change_tools(_workspace(world)),
        GroupName.DIRECTORY: lambda world: directory_tools(_workspace(world)),
        GroupName.CLOCK: lambda world: clock_tools(world.clock),
        GroupName.WEATHER: lambda world: weather_tools(),
        GroupName.CURRENCY: lambda world: currency_tools(),
        GroupName.CALCULATOR: lambda world: calculator_tools(),
        GroupName.PHONE: lambda world: phone_tools(world.phone),
        GroupName.WEB: lambda world: web_tools(world.pages, world.clean),
        GroupName.TODO: lambda world: todo_tools(world.todo),
        GroupName.PYTHON: lambda world: interpreter_tools(isolation(world.limits), world.clean),
    }
)
