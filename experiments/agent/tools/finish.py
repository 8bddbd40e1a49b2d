"""The tool that ends a turn, for a model that has to call one in every message (`TurnSettings.finish`)."""

from __future__ import annotations

from typing import Final

from experiments.agent.tools.definitions import Arguments
from experiments.agent.tools.outcome import Reply
from experiments.agent.tools.tool import ALL_STAGES, Tool, tool

FINISH: Final = "finish"


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
