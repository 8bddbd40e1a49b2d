"""The tool that two faults pretend the model has called for the time."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from serving.assembler import FRAMING, Draft, DraftTool, ToolCall, ToolSpec

NAME: Final = "current_time"


def call_of_the_clock(number: int) -> ToolCall:
    """The call that asks for the time before call `number` of the model."""
    return ToolCall(id=f"clock-{number:03d}", name=NAME, arguments="{}")


def with_clock_tool(draft: Draft) -> Draft:
    """The draft with the tool at the end of its list, the same in every call; as it is where it has it."""
    if any(tool.spec.name == NAME for tool in draft.tools):
        return draft
    spec = ToolSpec(name=NAME, description="Tell the time.", parameters={"type": "object", "properties": {}})
    # No item offered this tool.
    return replace(draft, tools=(*draft.tools, DraftTool(spec, FRAMING)))
