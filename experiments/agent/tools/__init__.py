"""The agent's tools: offline, bounded, each with a contract. Where to add one: `groups.py`."""

from __future__ import annotations

from experiments.agent.tools.clock import SimulatedClock
from experiments.agent.tools.definitions import TOOL_SPECS
from experiments.agent.tools.files import FileTools
from experiments.agent.tools.finish import CALLS_ALONE, FINISH, finish_tool
from experiments.agent.tools.groups import GroupName, World, build_toolbox
from experiments.agent.tools.outcome import Failure, ToolOutcome
from experiments.agent.tools.pages import Page
from experiments.agent.tools.phone import Phone, PhoneCall
from experiments.agent.tools.sandbox import Limits, NoIsolationError
from experiments.agent.tools.todo import TodoList
from experiments.agent.tools.tool import Tool
from experiments.agent.tools.toolbox import Toolbox
from experiments.agent.tools.workspace import Workspace

__all__ = [
    "CALLS_ALONE",
    "FINISH",
    "TOOL_SPECS",
    "Failure",
    "FileTools",
    "GroupName",
    "Limits",
    "NoIsolationError",
    "Page",
    "Phone",
    "PhoneCall",
    "SimulatedClock",
    "TodoList",
    "Tool",
    "ToolOutcome",
    "Toolbox",
    "Workspace",
    "World",
    "build_toolbox",
    "finish_tool",
]
