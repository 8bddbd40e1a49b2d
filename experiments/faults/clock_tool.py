"""The tool that two faults pretend the model has called for the time."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from serving.assembler import FRAMING, Draft, DraftTool, ToolCall, ToolSpec

NAME: Final = "current_time"
CALL_PREFIX: Final = "clock-"
"""Of the ids of calls that the model never made; a call of its own has the server's id."""


def call_of_the_clock(which: str) -> ToolCall:
    """A call that asks for the time; `which` tells the calls of one conversation apart."""
    return ToolCall(id=f"{CALL_PREFIX}{which}", name=NAME, arguments="{}")


def with_clock_tool(draft: Draft) -> Draft:
    """The draft with the tool at the end of its list, the same in every call; as it is where it has it."""
    if any(tool.spec.name == NAME for tool in draft.tools):
        return draft
    spec = ToolSpec(name=NAME, description="Tell the time.", parameters={"type": "object", "properties": {}})
    # No item offered this tool.
    return replace(draft, tools=(*draft.tools, DraftTool(spec, FRAMING)))
