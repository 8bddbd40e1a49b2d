"""An agent's run of two hundred turns over the files of the file tour, as large as a window or as small as them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count, islice

from experiments.workloads import file_tour
from experiments.workloads.file_tour import SNAPSHOT
from serving.assembler import (
    AssistantTurn,
    ToolCall,
    ToolResult,
    ToolStep,
    Trajectory,
    Turn,
    UserTurn,
)

STEPS_PER_TASK = 8
"""Tool steps between a user's message and the answer to it; every fourth step calls two tools at once."""


def long_run(turns: int, observation: int = 0) -> Trajectory:
    """The first `turns` turns of an endless run; equal arguments, equal bytes. No call id comes twice.

    `observation` is the size of a tool result in characters, cut from the tour's files read in a circle; 0:
    the tour itself, again and again, with the results that its tools really gave.
    """
    tour = file_tour()
    made = _cut_from_files(observation) if observation else _tours()
    return Trajectory(system=tour.system, tools=tour.tools, turns=tuple(islice(made, turns)))


def _tours() -> Iterator[Turn]:
    for number in count():
        for turn in file_tour(number).turns:
            yield _renamed(turn, f"{number:02d}-") if isinstance(turn, ToolStep) else turn


def _renamed(step: ToolStep, prefix: str) -> ToolStep:
    return step.model_copy(
        update={
            "calls": tuple(call.model_copy(update={"id": prefix + call.id}) for call in step.calls),
            "results": tuple(
                result.model_copy(update={"call_id": prefix + result.call_id}) for result in step.results
            ),
        }
    )


def _cut_from_files(observation: int) -> Iterator[Turn]:
    paths = sorted(path for path in SNAPSHOT.rglob("*") if path.is_file())
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    position = 0
    for task in count():
        yield UserTurn(text=f"Ticket T-{task}: say which lines of the files answer it, and quote them.")
        for step in range(STEPS_PER_TASK):
            calls: list[ToolCall] = []
            results: list[ToolResult] = []
            for place in range(2 if step % 4 == 3 else 1):
                call_id = f"call-{task:03d}-{step}-{place}"
                arguments = {"path": f"part-{position // observation % 97}.txt", "from_line": position % 400}
                calls.append(ToolCall(id=call_id, name="read_file", arguments=json.dumps(arguments)))
                content = (text + text)[position % len(text) :][:observation]
                results.append(ToolResult(call_id=call_id, content=content))
                position += observation
            yield ToolStep(calls=tuple(calls), results=tuple(results), text="I read on from where I stopped.")
        yield AssistantTurn(
            text=f"Ticket T-{task} is answered by the lines that I quoted from the last files."
        )
