from __future__ import annotations

from experiments.workloads import file_tour
from serving.assembler import ToolStep


def test_the_same_seed_gives_the_same_bytes() -> None:
    assert file_tour(3).model_dump_json() == file_tour(3).model_dump_json()


def test_seeds_are_different_work_of_the_same_kind() -> None:
    tours = [file_tour(seed) for seed in range(6)]
    assert len({tour.model_dump_json() for tour in tours}) > 3
    assert {tour.calls for tour in tours} == {16}


def test_every_tool_call_of_the_script_succeeds() -> None:
    for seed in range(6):
        steps = [turn for turn in file_tour(seed).turns if isinstance(turn, ToolStep)]
        assert len(steps) == 14
        assert any(len(step.calls) > 1 for step in steps)
        for step in steps:
            for result in step.results:
                assert result.content
                assert not result.content.lower().startswith("error")


def test_the_model_is_offered_at_least_eight_tools() -> None:
    assert len(file_tour().tools) >= 8
