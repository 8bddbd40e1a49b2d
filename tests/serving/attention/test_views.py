from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.attention import SegmentKind
from serving.attention.views import (
    align,
    compare,
    layer_profile,
    position_curve,
    triangles,
)
from serving.errors import UsageError
from tests.support.made_capture import PARTS, made_capture, made_segments

CAPTURE, MATRICES = made_capture()
SEGMENTS = CAPTURE.segments


def test_a_triangle_is_the_mass_of_its_blocks() -> None:
    found = {one.name: one for one in triangles(CAPTURE)}
    rows, keys = list(SEGMENTS.positions("output#answer")), list(SEGMENTS.positions("output#thinking"))
    by_hand = MATRICES[:, :, rows][..., keys].sum(-1).mean()
    one = found["answer → thinking"]
    assert one.mass == pytest.approx(by_hand, abs=1e-6)
    assert one.rows == len(rows)
    assert one.triangle.mass.shape == (3,)
    assert one.expected is not None
    assert one.ratio == pytest.approx(one.mass / one.expected)


def test_a_block_on_the_diagonal_counts_itself_and_not_its_fellows() -> None:
    parts = [*PARTS[:-2], ("turn-002#result", "again", SegmentKind.TOOL_RESULT, 9)]
    capture, matrices = made_capture(made_segments(parts=parts))
    own = []
    for name in ("turn-001#result", "turn-002#result"):
        rows = list(capture.segments.positions(name))
        own.append(matrices[:, :, rows][..., rows].sum(-1).mean())
    found = {one.name: one for one in triangles(capture)}
    assert found["tool results → themselves"].mass == pytest.approx(np.mean(own), abs=1e-6)


def test_a_part_that_stands_behind_is_in_no_triangle() -> None:
    parts = [*PARTS[:-3], PARTS[-1], PARTS[-3]]  # the answer, then the status bar
    capture, _ = made_capture(made_segments(parts=parts))
    assert "answer → status bar" not in {one.name for one in triangles(capture)}
    assert "answer → status bar" in {one.name for one in triangles(CAPTURE)}


def test_without_a_baseline_nothing_is_expected() -> None:
    for one in triangles(replace(CAPTURE, baseline=None)):
        assert one.expected is None
        assert one.ratio is None


def test_the_profile_leaves_out_the_row_that_sees_itself_alone() -> None:
    profile = layer_profile(CAPTURE)
    assert np.allclose(profile.sink, MATRICES[:, :, 1:, 0].mean((1, 2)), atol=1e-6)
    assert profile.entropy is not None
    assert CAPTURE.entropy is not None
    assert np.allclose(profile.entropy, CAPTURE.entropy[:, :, 1:].mean((1, 2)), atol=1e-5)


def test_an_even_spread_has_a_flat_curve() -> None:
    tokens = SEGMENTS.tokens
    even = np.tril(np.ones((tokens, tokens))) / np.arange(1, tokens + 1)[:, None]
    capture = replace(CAPTURE, received=np.broadcast_to(even.sum(0), (3, 4, tokens)).astype(np.float32))
    curve = position_curve(capture, bins=7)
    assert curve is not None
    assert np.allclose(curve.times_even, 1, atol=1e-5)


@given(bins=st.integers(1, 60))
def test_the_bins_of_the_curve_hold_every_token_but_the_sink_once(bins: int) -> None:
    curve = position_curve(CAPTURE, bins)
    assert curve is not None
    assert curve.starts == (1, *curve.ends[:-1])
    assert curve.ends[-1] == SEGMENTS.tokens


def test_two_contexts_are_aligned_by_segment_id() -> None:
    other = made_segments(parts=[part for part in PARTS if part[0] != "status-bar"])
    pairs = align(SEGMENTS, other)
    assert (SEGMENTS.index("status-bar"), None) == pairs[-1]
    for one, two in pairs[:-1]:
        assert one is not None
        assert two is not None
        assert SEGMENTS.segments[one].id == other.segments[two].id


def test_a_comparison_says_what_a_segment_gained_and_what_only_one_side_has() -> None:
    second, _ = made_capture(made_segments(parts=[part for part in PARTS if part[0] != "status-bar"]), seed=1)
    pairs = {pair.id: pair for pair in compare(CAPTURE, second)}
    assert pairs["status-bar"].second is None
    assert pairs["status-bar"].change is None
    pair = pairs["system"]
    assert pair.first is not None
    assert pair.second is not None
    assert pair.change == pytest.approx(pair.second - pair.first)
    assert sum(one.first or 0 for one in pairs.values()) == pytest.approx(1, abs=1e-5)


def test_contexts_of_two_models_are_not_compared() -> None:
    other = replace(CAPTURE, model=CAPTURE.model.model_copy(update={"name": "another"}))
    with pytest.raises(UsageError, match="one model"):
        compare(CAPTURE, other)
