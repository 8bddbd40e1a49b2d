"""The statistics for any shape, any partition, any rows, and any way in which the rows come."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.attention import CaptureOptions, RowMode
from serving.attention.plan import HeadShape, Plan, make_plan
from serving.attention.recorder import Recorder
from serving.errors import LabError
from tests.support.attention import assert_equal, parts, softmax_matrices
from tests.support.examples import FULL

SOME = settings(max_examples=600 if FULL else 60)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Plan, torch.Tensor, torch.Tensor, float, list[int]]:
    """A plan of one layer, its query and key, and the positions at which the sequence is cut in pieces."""
    tokens = draw(st.integers(1, 90))
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    dim = draw(st.sampled_from([1, 3, 8]))
    shape = HeadShape(1, kv_heads * group, kv_heads, dim)
    owners = draw(st.lists(st.integers(0, 6), min_size=tokens, max_size=tokens))
    positions = st.sets(st.integers(0, tokens - 1), min_size=1, max_size=12).map(lambda s: tuple(sorted(s)))
    mode = draw(st.sampled_from(RowMode))
    chosen = draw(positions) if mode is RowMode.CHOSEN else ()
    full = draw(st.one_of(st.just(()), positions)) if mode is not RowMode.CHOSEN else chosen[:3]
    heads = draw(st.one_of(st.none(), st.sets(st.integers(0, shape.num_heads - 1), min_size=1)))
    options = CaptureOptions(
        rows=mode,
        chosen=chosen,
        full_rows=full,
        heads=None if heads is None else tuple(sorted(heads)),
        row_bins=draw(st.integers(1, 40)),
        heatmap_bins=draw(st.integers(1, 30)),
        shuffles=draw(st.integers(0, 2)),
    )
    plan = make_plan(shape, parts(owners, sink=draw(st.booleans())), options)
    random = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    width = draw(st.sampled_from([0.0, 1.0, 30.0]))  # from uniform rows to rows with one key
    query = torch.randn(shape.num_heads, tokens, dim, generator=random) * width
    key = torch.randn(shape.num_kv_heads, tokens, dim, generator=random)
    cuts = sorted(draw(st.sets(st.integers(1, max(1, tokens - 1)), max_size=5)) - {tokens})
    return plan, query, key, draw(st.sampled_from([0.125, 1.0])), cuts


def record(
    plan: Plan, query: torch.Tensor, key: torch.Tensor, scale: float, cuts: list[int]
) -> dict[str, np.ndarray]:
    recorder = Recorder(plan)
    edges = [0, *cuts, plan.tokens]
    for start, end in itertools.pairwise(edges):
        if start < end:
            recorder.observe(0, query[:, start:end], key[:, :end], scale)
    return recorder.finish()


@SOME
@given(cases())
def test_every_statistic_is_that_of_the_whole_matrix(
    case: tuple[Plan, torch.Tensor, torch.Tensor, float, list[int]],
) -> None:
    plan, query, key, scale, cuts = case
    assert_equal(plan, record(plan, query, key, scale, cuts), softmax_matrices(query, key, scale))


@SOME
@given(cases())
def test_masses_are_shares_and_every_row_sums_to_one(
    case: tuple[Plan, torch.Tensor, torch.Tensor, float, list[int]],
) -> None:
    plan, query, key, scale, cuts = case
    arrays = record(plan, query, key, scale, cuts)
    rows = np.bincount(plan.owners[0][plan.captured], minlength=len(plan.segments.segments))
    assert np.abs(arrays["mass"].sum(-1) - 1).max() <= 1e-4
    assert np.abs(arrays["between"][:, 0].sum(-1) - rows).max() <= 1e-4 * plan.tokens
    assert np.abs(arrays["heatmap"].sum((-1, -2)) - len(plan.captured)).max() <= 1e-4 * plan.tokens
    assert np.abs(arrays["received"].sum(-1) - len(plan.captured)).max() <= 1e-4 * plan.tokens
    for name in ("mass", "sink", "peak"):
        assert arrays[name].min() >= 0
        assert arrays[name].max() <= 1 + 1e-5
    assert (arrays["peak"] >= arrays["sink"] - 1e-5).all()
    assert arrays["entropy"].min() >= -1e-4
    assert arrays["entropy"].max() <= np.log(plan.tokens) + 1e-4


def small_plan(tokens: int = 12, **options: object) -> Plan:
    return make_plan(HeadShape(2, 4, 2, 8), parts([i // 4 for i in range(tokens)]), CaptureOptions(**options))


def pieces(tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, tokens, 8), torch.randn(2, tokens, 8)


def test_a_position_that_comes_twice_is_an_error() -> None:
    recorder = Recorder(small_plan())
    query, key = pieces(12)
    recorder.observe(0, query, key, 1.0)
    with pytest.raises(LabError, match="layer 0 got positions 4 to 7"):
        recorder.observe(0, query[:, 4:8], key[:, :8], 1.0)


def test_a_position_beyond_the_planned_sequence_is_an_error() -> None:
    query, key = pieces(13)
    with pytest.raises(LabError, match="0 to 12 of 12"):
        Recorder(small_plan()).observe(0, query, key, 1.0)


def test_a_position_that_never_came_is_an_error() -> None:
    recorder = Recorder(small_plan())
    query, key = pieces(12)
    recorder.observe(0, query, key, 1.0)
    recorder.observe(1, query[:, :11], key[:, :11], 1.0)
    with pytest.raises(LabError, match="layer 1 never saw position 11 of 12"):
        recorder.finish()


def test_a_recorder_that_saw_nothing_is_an_error() -> None:
    with pytest.raises(LabError, match="layer 0 never saw position 0 of 12"):
        Recorder(small_plan()).finish()


def test_numbers_that_are_not_finite_are_an_error_and_not_a_picture() -> None:
    recorder = Recorder(small_plan(layers=(0,)))
    query, key = pieces(12)
    query[2, 7, 3] = torch.nan
    recorder.observe(0, query, key, 1.0)
    with pytest.raises(LabError, match="must sum to 1"):
        recorder.finish()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_prefill_and_decoding_may_run_in_any_mode_of_torch(threads: int, mode: Callable[..., Any]) -> None:
    torch.set_num_threads(threads)
    plan = small_plan(layers=(0,), tokens=24)
    query, key = torch.randn(4, 24, 8, requires_grad=True), torch.randn(2, 24, 8, requires_grad=True)
    recorder = Recorder(plan)
    with mode():
        recorder.observe(0, query[:, :12], key[:, :12], 1.0)
        recorder.observe(0, query[:, 12:13], key[:, :13], 1.0)
    recorder.observe(0, query[:, 13:14], key[:, :14], 1.0)
    with torch.inference_mode():
        recorder.observe(0, query[:, 14:], key, 1.0)
    assert_equal(plan, recorder.finish(), softmax_matrices(query.detach(), key.detach(), 1.0))


def test_layers_that_were_not_asked_for_cost_nothing_and_may_come_twice() -> None:
    recorder = Recorder(small_plan(layers=(1,)))
    query, key = pieces(12)
    for layer in (0, 1, 0):
        recorder.observe(layer, query, key, 1.0)
    assert recorder.finish()["mass"].shape[0] == 1


def test_rows_that_the_cache_holds_need_not_come_and_cannot_be_wanted() -> None:
    plan = small_plan(rows=RowMode.CHOSEN, chosen=(9, 11))
    query, key = pieces(12)
    whole, rest = Recorder(plan), Recorder(plan, cached=9)
    for layer in (0, 1):
        whole.observe(layer, query, key, 1.0)
        rest.observe(layer, query[:, 9:], key, 1.0)
    expected = whole.finish()
    for name, values in rest.finish().items():
        np.testing.assert_array_equal(values, expected[name])
    with pytest.raises(LabError, match="Position 9 is to be captured, but the model holds 10"):
        Recorder(plan, cached=10)
    with pytest.raises(LabError, match="in its cache"):
        Recorder(small_plan(rows=RowMode.CHOSEN, chosen=(9,), keep_rows=(9,)), cached=3)
