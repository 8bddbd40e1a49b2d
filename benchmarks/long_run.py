"""A run of two hundred turns: file tours one after the other, each with its own order and ticket."""

from __future__ import annotations

from itertools import count

from experiments.workloads import file_tour
from serving.assembler import ToolStep, Trajectory, Turn


def long_run(turns: int) -> Trajectory:
    """The first `turns` turns; the tools really ran, on files that never change. No call id comes twice."""
    tours = (file_tour(seed) for seed in count())
    first = file_tour(0)
    made: list[Turn] = []
    for number, tour in enumerate(tours):
        made += [_renamed(turn, f"{number:02d}-") for turn in tour.turns]
        if len(made) >= turns:
            break
    return Trajectory(system=first.system, tools=first.tools, turns=tuple(made[:turns]))


def _renamed(turn: Turn, prefix: str) -> Turn:
    if not isinstance(turn, ToolStep):
        return turn
    return ToolStep(
        calls=tuple(call.model_copy(update={"id": prefix + call.id}) for call in turn.calls),
        results=tuple(
            result.model_copy(update={"call_id": prefix + result.call_id}) for result in turn.results
        ),
        text=turn.text,
        reasoning=turn.reasoning,
    )
