"""Numbers about segments are means over rows, weighted as the rows are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from serving.attention import Capture, CaptureOptions, RowMode
from serving.attention.finish import to_capture
from serving.attention.measures import find_sinks, mass_from, rank_heads, triangle
from serving.attention.plan import HeadShape, make_plan
from serving.attention.recorder import Recorder
from serving.errors import UsageError
from tests.support.attention import IDENTITY, parts, softmax_matrices

OWNERS = [0, *[1] * 40, *[2] * 7, *[3] * 52]


def captured(query: torch.Tensor, key: torch.Tensor, **options: object) -> Capture:
    plan = make_plan(HeadShape(1, len(query), len(key), 4), parts(OWNERS), CaptureOptions(**options))
    recorder = Recorder(plan)
    recorder.observe(0, query, key, 1.0)
    return to_capture(plan, recorder.finish(), IDENTITY, [0] * plan.tokens)


@pytest.fixture(scope="module")
def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(3)
    return torch.randn(4, 100, 4, generator=random), torch.randn(2, 100, 4, generator=random)


def test_mass_from_all_rows_is_the_mean_of_all_rows(tensors: tuple[torch.Tensor, torch.Tensor]) -> None:
    capture = captured(*tensors, rows=RowMode.EVERY)
    assert np.abs(mass_from(capture) - capture.mass.mean(2)).max() <= 1e-5


def test_mass_from_two_segments_weighs_each_by_its_rows(tensors: tuple[torch.Tensor, torch.Tensor]) -> None:
    capture = captured(*tensors, rows=RowMode.EVERY)
    rows = np.isin(capture.segments.by_token, [2, 3])
    got = mass_from(capture, ["part-2", "part-3"])
    assert np.abs(got - capture.mass[:, :, rows].mean(2)).max() <= 1e-5


def test_a_triangle_is_the_block_of_the_matrix(tensors: tuple[torch.Tensor, torch.Tensor]) -> None:
    found = triangle(captured(*tensors, shuffles=2), ["part-3"], ["part-1", "part-3"])
    matrices = softmax_matrices(*tensors, 1.0)
    hot = np.isin(OWNERS, [1, 3])
    assert found.mass == pytest.approx(matrices[:, :, 48:, hot].sum(-1).mean((1, 2)), abs=1e-4)
    assert found.baseline is not None
    assert triangle(captured(*tensors), ["part-3"], ["part-1"]).baseline is None


def test_heads_are_ranked_by_what_they_give_to_a_segment() -> None:
    """The second head is made to look at part 2 alone."""
    at = torch.tensor([[1.0, 0, 0, 0] if owner == 2 else [0.0] * 4 for owner in OWNERS])
    query = torch.stack([torch.zeros(100, 4), torch.ones(100, 4) * 30])
    ranked = rank_heads(captured(query, at[None]), ["part-2"], ["part-3"])
    assert [share.head for share in ranked] == [1, 0]
    assert ranked[0].mass > 0.99
    assert ranked[1].mass == pytest.approx(7 / 75, abs=0.02)


def test_a_key_that_all_later_rows_rest_on_is_a_sink_and_a_late_one_is_not_judged() -> None:
    rests_on = torch.zeros(100, 4)
    rests_on[20] = torch.tensor([30.0, 0, 0, 0])
    rests_on[95] = torch.tensor([60.0, 0, 0, 0])
    query = torch.ones(2, 100, 4)
    sinks = find_sinks(captured(query, rests_on[None]))
    assert [(sink.position, sink.share) for sink in sinks] == [(20, 1.0)]


def test_sinks_need_the_received_mass_of_all_rows(tensors: tuple[torch.Tensor, torch.Tensor]) -> None:
    for capture in (
        captured(*tensors, statistics=frozenset()),
        captured(*tensors, rows=RowMode.CHOSEN, chosen=(70, 80)),
    ):
        with pytest.raises(UsageError, match="all rows"):
            find_sinks(capture)


def test_a_segment_without_captured_rows_cannot_look(tensors: tuple[torch.Tensor, torch.Tensor]) -> None:
    capture = captured(*tensors, rows=RowMode.CHOSEN, chosen=(70, 80))
    with pytest.raises(UsageError, match="captured rows"):
        mass_from(capture, ["part-1"])
