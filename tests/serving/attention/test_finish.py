"""Maps keep mass at both resolutions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from serving.attention import Capture, CaptureOptions, RowMode
from serving.attention.finish import to_capture
from serving.attention.plan import HeadShape, make_plan
from serving.attention.recorder import Recorder
from serving.errors import UsageError
from tests.support.attention import IDENTITY, parts, softmax_matrices

QUERY, KEY = torch.randn(4, 103, 8), torch.randn(2, 103, 8)


def captured(**options: object) -> Capture:
    plan = make_plan(HeadShape(1, 4, 2, 8), parts([i // 20 for i in range(103)]), CaptureOptions(**options))
    recorder = Recorder(plan)
    recorder.observe(0, QUERY, KEY, 1.0)
    return to_capture(plan, recorder.finish(), IDENTITY, [0] * 103)


@pytest.mark.parametrize("bins", [1, 7, 16, 51, 64])
def test_every_row_of_every_map_sums_to_one(bins: int) -> None:
    capture = captured(heatmap_bins=bins)
    assert capture.heatmap is not None
    assert capture.heatmap_mean is not None
    assert capture.heatmap.shape[-1] <= bins
    assert capture.heatmap_mean.shape[-1] <= 2 * bins
    assert np.abs(capture.heatmap.sum(-1) - 1).max() <= 1e-4
    assert np.abs(capture.heatmap_mean.sum(-1) - 1).max() <= 1e-4


def test_mean_and_maximum_are_those_over_the_heads_of_the_pooled_maps() -> None:
    capture = captured(heatmap_bins=64)  # more bins than tokens: one token a bin in the fine maps
    matrices = softmax_matrices(QUERY, KEY, 1.0)
    assert capture.heatmap_mean is not None
    assert capture.heatmap_max is not None
    assert np.abs(capture.heatmap_mean - matrices.mean(1)).max() <= 1e-5
    assert np.abs(capture.heatmap_max - matrices.max(1)).max() <= 1e-5


def test_a_bin_without_captured_rows_is_empty_and_the_others_sum_to_one() -> None:
    capture = captured(rows=RowMode.CHOSEN, chosen=(40, 41, 102), heatmap_bins=10)
    assert capture.heatmap is not None
    sums = capture.heatmap[0, 0].sum(-1)
    assert (np.abs(sums[sums > 0] - 1) <= 1e-4).all()
    assert (sums > 0).sum() == 2


def test_mass_between_segments_is_the_mean_over_the_rows_of_the_first() -> None:
    capture = captured()
    matrices = softmax_matrices(QUERY, KEY, 1.0)
    hot = np.eye(len(capture.segments.segments))[capture.segments.by_token]
    wanted = (hot.T @ matrices @ hot) / hot.sum(0)[:, None]
    assert np.abs(capture.between - wanted).max() <= 1e-4
    assert (capture.rows_in == hot.sum(0)).all()


def test_what_was_not_asked_for_is_not_there() -> None:
    capture = captured(statistics=frozenset())
    for name in ("entropy", "peak", "distance", "distance_sd", "received", "heatmap", "heatmap_mean", "full"):
        assert getattr(capture, name) is None
    assert capture.baseline is None


@pytest.mark.parametrize("cuts", [(), (40,), (40, 41, 42, 102)])
def test_kept_queries_redraw_the_exact_rows_of_any_captured_head(cuts: tuple[int, ...]) -> None:
    options = CaptureOptions(heads=(0, 2, 3), keep_rows=(0, 41, 102), row_bins=4)
    plan = make_plan(HeadShape(1, 4, 2, 8), parts([0] * 103), options)
    recorder = Recorder(plan)
    for start, end in itertools.pairwise([0, *cuts, 103]):
        recorder.observe(0, QUERY[:, start:end], KEY[:, :end], 0.5)
    identity = IDENTITY.model_copy(update={"num_heads": 4, "num_kv_heads": 2})
    capture = to_capture(plan, recorder.finish(), identity, [0] * 103)
    matrices = softmax_matrices(QUERY, KEY, 0.5)
    for head in (0, 2, 3):
        assert np.abs(capture.redraw(0, head) - matrices[0, head, [0, 41, 102]]).max() <= 1e-6
    with pytest.raises(UsageError, match="captured head, got 1"):
        capture.redraw(0, 1)


def test_without_kept_queries_nothing_is_redrawn() -> None:
    with pytest.raises(UsageError, match="keep_rows"):
        captured().redraw(0, 0)
