from __future__ import annotations

from pathlib import Path

import pytest

from experiments.workloads import file_tour
from serving.assembler import ToolStep
from serving.errors import LabError


def test_the_same_seed_gives_the_same_bytes() -> None:
    assert file_tour(3).model_dump_json() == file_tour(3).model_dump_json()


def test_no_two_seeds_are_the_same_work_not_even_in_their_first_calls() -> None:
    for study_calls in (2, 6, 16):
        starts = [file_tour(seed).history(study_calls - 1) for seed in range(30)]
        assert len({str(start) for start in starts}) == 30
    orders = {tuple(str(item.payload) for item in file_tour(seed).history(5)[2:]) for seed in range(30)}
    assert len(orders) > 20, "seeds differ in the ticket's number only"


def test_every_seed_has_the_same_calls_and_steps() -> None:
    for seed in range(6):
        tour = file_tour(seed)
        steps = [turn for turn in tour.turns if isinstance(turn, ToolStep)]
        assert tour.calls == 16
        assert len(steps) == 14
        assert sum(len(step.calls) > 1 for step in steps) == 2


def test_a_step_that_fails_stops_the_tour(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="expected to succeed"):
        file_tour(root=tmp_path)


def test_the_model_is_offered_at_least_eight_tools() -> None:
    assert len(file_tour().tools) >= 8
