"""The run that the rendering benchmark replays, and the benchmark itself over a short one."""

from __future__ import annotations

import pytest

from benchmarks.incremental_rendering import measure, report
from benchmarks.long_run import long_run
from serving.assembler import ToolStep
from serving.models import ensure


@pytest.mark.parametrize("observation", [0, 300])
def test_a_long_run_has_the_turns_asked_for_and_no_call_id_twice(observation: int) -> None:
    run = long_run(200, observation)
    calls = [call.id for turn in run.turns if isinstance(turn, ToolStep) for call in turn.calls]
    assert len(run.turns) == 200
    assert len(calls) == len(set(calls)) > 150
    assert long_run(120, observation).turns == run.turns[:120]
    assert long_run(200, observation) == run


def test_a_tool_result_has_the_size_asked_for() -> None:
    steps = [turn for turn in long_run(40, 300).turns if isinstance(turn, ToolStep)]
    assert {len(result.content) for step in steps for result in step.results} == {300}


def test_the_benchmark_compares_both_sides_and_prints_a_ratio_for_each_bar(
    capsys: pytest.CaptureFixture[str],
) -> None:
    points = measure(ensure("qwen3-nano-shape").path, long_run(12, 200), (6, 12), samples=2)
    assert [(point.turns, len(point.known), len(point.anew)) for point in points] == [(6, 2, 2), (12, 2, 2)]
    assert points[0].tokens < points[1].tokens
    report(points)
    shown = capsys.readouterr().out
    assert "assemble, anew / incremental, at 12 turns" in shown
    assert "encoding, anew / incremental, at 12 turns" in shown
