"""The tool that ends a turn, for a model that has to call one in every message (`TurnSettings.finish`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pydantic import JsonValue

from experiments.agent.tools.definitions import Arguments
from experiments.agent.tools.outcome import Reply
from experiments.agent.tools.tool import ALL_STAGES, Tool, tool

FINISH: Final = "finish"
CALLS_ALONE: Final[Mapping[str, JsonValue]] = MappingProxyType(
    {"decode.tool_choice": "required", "decode.parallel_tool_calls": False, "decode.strict_arguments": True}
)
"""Factors of an agent that calls one tool in every message, and fits its schema: small models that may use words say
what they will do, and do not do it."""


class Finished(Arguments):
    """What the user is told."""

    answer: str


def finish_tool() -> Tool:
    """`finish`: its result is what it is given, which a loop that knows of it takes as the turn's answer."""
    return tool(
        FINISH,
        "End the work, with one sentence for the user.",
        Finished,
        lambda said: Reply(said.answer),
        stages=ALL_STAGES,
    )
