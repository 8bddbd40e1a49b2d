"""The studies `tool-calling` and `tool-calling-cost`: whether a model calls its tools rightly, and at what price."""

from __future__ import annotations

from experiments.tool_calling.cost import ToolCallingCostStudy
from experiments.tool_calling.study import ToolCallingStudy

__all__ = ["ToolCallingCostStudy", "ToolCallingStudy"]
