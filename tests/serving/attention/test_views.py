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
    looked_at,
    position_curve,
    rank_heads,
    resting_keys,
    triangles,
)
from serving.errors import UsageError
from tests.support.made_capture import PARTS, made_capture, made_segments

CAPTURE, MATRICES = made_capture()
SEGMENTS = CAPTURE.segments


def test_the_mass_of_all_rows_is_the_mean_over_the_whole_matrix() -> None:
    place = SEGMENTS.index("tool:read")
    keys = list(SEGMENTS.positions("tool:read"))
    assert np.allclose(looked_at(CAPTURE)[:, :, place], MATRICES[..., keys].sum(-1).mean(-1), atol=1e-6)


@pytest.mark.parametrize("source", [None, "output#answer", "framing"])
def test_what_rows_give_sums_to_one_over_the_segments(source: str | None) -> None:
    place = None if source is None else SEGMENTS.index(source)
    assert np.allclose(looked_at(CAPTURE, place).sum(-1), 1, atol=1e-5)


def test_rows_that_were_not_captured_are_refused_by_name() -> None:
    place = SEGMENTS.index("status-bar")
    rows = CAPTURE.rows_in.copy()
    rows[place] = 0
    with pytest.raises(UsageError, match="'status-bar'"):
        looked_at(replace(CAPTURE, rows_in=rows), place)


def test_heads_are_ranked_by_their_mass_on_the_segment() -> None:
    target, source = SEGMENTS.index("status-bar"), SEGMENTS.index("output#answer")
    ranked = rank_heads(CAPTURE, target, source)
    masses = [one.mass for one in ranked]
    assert len(ranked) == 12
    assert masses == sorted(masses, reverse=True)
    rows, keys = list(SEGMENTS.positions("output#answer")), list(SEGMENTS.positions("status-bar"))
    first = MATRICES[ranked[0].layer, ranked[0].head][np.ix_(rows, keys)].sum(1).mean()
    assert masses[0] == pytest.approx(first, abs=1e-6)
    assert rank_heads(CAPTURE, target, source, limit=2) == ranked[:2]


def test_a_triangle_is_the_mass_of_its_blocks() -> None:
    found = {one.name: one for one in triangles(CAPTURE)}
    rows, keys = list(SEGMENTS.positions("output#answer")), list(SEGMENTS.positions("output#thinking"))
    by_hand = MATRICES[:, :, rows][..., keys].sum(-1).mean()
    one = found["answer → thinking"]
    assert one.mass == pytest.approx(by_hand, abs=1e-6)
    assert one.rows == len(rows)
    assert np.mean(one.by_layer) == pytest.approx(one.mass, abs=1e-6)
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


def test_heads_rest_on_a_key_that_gets_most_of_their_attention() -> None:
    assert CAPTURE.received is not None
    received = np.full_like(CAPTURE.received, 0.1)
    received[1, 2, 5] = 0.9 * (SEGMENTS.tokens - 5)
    (key,) = resting_keys(replace(CAPTURE, received=received)) or ()
    assert (key.token, key.heads) == (5, 1)
    assert key.largest == pytest.approx(0.9, abs=1e-5)


def test_a_key_that_few_rows_see_is_not_judged() -> None:
    assert CAPTURE.received is not None
    received = np.zeros_like(CAPTURE.received)
    received[..., -1] = 1
    assert resting_keys(replace(CAPTURE, received=received)) == ()


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
