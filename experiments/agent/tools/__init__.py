"""Read-only file tools inside one folder."""

from __future__ import annotations

from experiments.agent.tools.definitions import TOOL_SPECS
from experiments.agent.tools.files import FileTools
from experiments.agent.tools.outcome import ToolOutcome

__all__ = ["TOOL_SPECS", "FileTools", "ToolOutcome"]
