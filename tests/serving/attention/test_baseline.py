"""The baseline is what places and lengths alone would give."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.attention import Capture, CaptureOptions, RowMode
from serving.attention.baseline import even_mass, shuffled
from serving.attention.finish import to_capture
from serving.attention.plan import HeadShape, Plan, make_plan
from serving.attention.recorder import Recorder
from tests.support.attention import IDENTITY, parts

SHAPE = HeadShape(1, 2, 1, 4)


@given(st.lists(st.integers(0, 4), min_size=2, max_size=60), st.integers(0, 5))
def test_a_random_order_keeps_every_length_and_the_sink_in_its_place(owners: list[int], seed: int) -> None:
    segments = parts(owners)
    for order in shuffled(segments, 3, seed):
        assert (np.bincount(order, minlength=len(segments.segments)) == segments.sizes).all()
        assert order[0] == 0
    assert all(
        (a == b).all() for a, b in zip(shuffled(segments, 3, seed), shuffled(segments, 3, seed), strict=True)
    )


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_even_mass_is_that_of_a_uniform_causal_matrix(owners: list[int]) -> None:
    hot = np.eye(4)[owners]
    uniform = np.tri(len(owners)) / np.arange(1, len(owners) + 1)[:, None]
    assert np.allclose(even_mass(np.array(owners), np.arange(len(owners)), 4), hot.T @ uniform @ hot)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=80))
def test_a_head_that_looks_evenly_at_all_it_sees_equals_its_baseline(owners: list[int]) -> None:
    plan = make_plan(SHAPE, parts(owners), CaptureOptions(rows=RowMode.EVERY, shuffles=20))
    capture = _captured(plan, torch.zeros(2, len(owners), 4), torch.randn(1, len(owners), 4))
    assert capture.baseline is not None
    seen = capture.baseline > 0
    assert np.abs(capture.baseline - capture.between)[seen].max() <= 1e-4


def test_a_block_that_looks_at_itself_stands_out_where_others_look_evenly() -> None:
    owners = [0, *[1] * 100, *[2] * 40, *[3] * 160, *[4] * 99]
    own = torch.tensor([[20.0, 0, 0, 0] if owner == 2 else [0.0] * 4 for owner in owners])
    plan = make_plan(SHAPE, parts(owners), CaptureOptions(rows=RowMode.EVERY, shuffles=16))
    capture = _captured(plan, own.expand(2, -1, -1).contiguous(), own[None])
    assert capture.baseline is not None
    assert capture.between[0, 0, 2, 2] > 0.99
    assert capture.baseline[0, 0, 2, 2] < 0.6


def test_what_no_row_can_see_has_no_baseline_mass() -> None:
    segments = parts([0, 1, 1, 2, 2])
    plan = make_plan(SHAPE, segments, CaptureOptions(rows=RowMode.EVERY, shuffles=4))
    capture = _captured(plan, torch.randn(2, 5, 4), torch.randn(1, 5, 4))
    assert capture.baseline is not None
    assert (capture.baseline[:, :, 1, 2] == 0).all()
    assert np.isfinite(capture.baseline).all()


def _captured(plan: Plan, query: torch.Tensor, key: torch.Tensor) -> Capture:
    recorder = Recorder(plan)
    recorder.observe(0, query, key, 1.0)
    return to_capture(plan, recorder.finish(), IDENTITY, [0] * plan.tokens)
