"""The estimate follows the arrays that are really made, and the refusal names what really fits."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.attention import CaptureOptions, RowMode, Statistic
from serving.attention.estimate import Memory, estimate_flop, estimate_memory, refuse_beyond
from serving.attention.plan import HeadShape, Plan, array_shapes, make_plan
from serving.attention.recorder import Recorder
from serving.engine.config import Dtype
from serving.engine.shape import ModelShape
from serving.errors import LabError
from serving.models import ModelFolder, ModelSource, Weights
from tests.support.attention import parts

QWEN3_06B = ModelShape(
    hidden_size=1024,
    intermediate_size=3072,
    num_hidden_layers=28,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    vocab_size=151_936,
    tie_word_embeddings=True,
    stored_dtype=Dtype.BFLOAT16,
)
HEADS = HeadShape(28, 16, 8, 128)
FOLDER = ModelFolder(
    name="qwen3-0.6b",
    path=Path("nowhere"),
    source=ModelSource.HUB,
    origin="the hub",
    revision=None,
    license=None,
    weights=Weights.REAL,
    weights_sha256=None,
    architecture="Qwen3ForCausalLM",
    tool_parser=None,
    reasoning_parser=None,
    max_position_embeddings=40_960,
    size_bytes=1,
)
GIB = 1 << 30


def planned(tokens: int, **options: object) -> Plan:
    return make_plan(HEADS, parts([i * 24 // tokens for i in range(tokens)]), CaptureOptions(**options))


def memory(plan: Plan) -> Memory:
    return estimate_memory(FOLDER, QWEN3_06B, plan.size, plan.options, threads=2)


@settings(max_examples=40)
@given(
    tokens=st.integers(1, 70),
    mode=st.sampled_from([RowMode.EVERY, RowMode.POOLED]),
    statistics=st.frozensets(st.sampled_from(Statistic)),
    bins=st.integers(1, 20),
    shuffles=st.integers(0, 2),
)
def test_the_estimated_arrays_are_those_that_are_made(
    tokens: int, mode: RowMode, statistics: frozenset[Statistic], bins: int, shuffles: int
) -> None:
    options = CaptureOptions(
        rows=mode, statistics=statistics, heatmap_bins=bins, shuffles=shuffles, full_rows=(0,), keep_rows=(0,)
    )
    plan = make_plan(HeadShape(1, 2, 1, 4), parts([i // 9 for i in range(tokens)]), options)
    recorder = Recorder(plan)
    recorder.observe(0, torch.randn(2, tokens, 4), torch.randn(1, tokens, 4), 1.0)
    made = {name: array.shape for name, array in recorder.finish().items()}
    assert made == dict(array_shapes(plan.size, options))


def test_what_is_added_at_32k_tokens_for_256_rows_is_under_one_gibibyte() -> None:
    chosen = planned(32_768, rows=RowMode.CHOSEN, chosen=tuple(range(32_512, 32_768)))
    assert memory(chosen).added < GIB
    assert memory(planned(32_768, rows=RowMode.EVERY)).added > GIB


def test_memory_grows_linearly_with_the_sequence() -> None:
    """Four times the tokens take at most four times the memory (the matrices would take sixteen times)."""
    short, long = (memory(planned(tokens, rows=RowMode.EVERY)) for tokens in (4096, 16_384))
    assert long.added <= 4 * short.added
    assert long.activations <= 4 * short.activations


def test_a_model_in_half_precision_is_counted_in_full_and_once_more_while_it_is_read() -> None:
    need = memory(planned(512))
    assert need.weights == 4 * QWEN3_06B.parameters
    assert need.loading == need.weights // 2
    assert need.total == need.libraries + need.weights + max(need.loading, need.activations + need.added)


def test_flop_counts_the_rows_that_are_captured() -> None:
    every, few = planned(1024, rows=RowMode.EVERY), planned(1024, rows=RowMode.CHOSEN, chosen=(0, 9))
    scores, flop = estimate_flop(QWEN3_06B, every)
    assert scores == 28 * 16 * 1024 * 1025 // 2
    some, less = estimate_flop(QWEN3_06B, few)
    assert some == 28 * 16 * 11
    assert less < flop


def test_what_fits_is_not_refused() -> None:
    plan = planned(2048)
    refuse_beyond(memory(plan), memory(plan).total, FOLDER, QWEN3_06B, plan, 2)


def test_a_refusal_says_what_is_needed_and_every_proposal_fits() -> None:
    plan = planned(16_384, rows=RowMode.EVERY)
    free = memory(planned(16_384)).total + GIB // 4
    assert memory(plan).total > free
    with pytest.raises(LabError) as caught:
        refuse_beyond(memory(plan), free, FOLDER, QWEN3_06B, plan, 2)
    said = str(caught.value)
    assert "rows='pooled'" in said
    layers = re.search(r"(\d+) of the 28 layers", said)
    tokens = re.search(r"with ([\d,]+) of the 16,384 tokens", said)
    assert layers is not None
    assert tokens is not None
    fewer = replace(plan.size, layers=int(layers[1]))
    length = int(tokens[1].replace(",", ""))
    shorter = replace(plan.size, tokens=length, rows=length)
    for size in (fewer, shorter):
        assert estimate_memory(FOLDER, QWEN3_06B, size, plan.options, 2).total <= free


def test_a_model_that_does_not_fit_at_all_is_said_to_be_too_large() -> None:
    plan = planned(64)
    with pytest.raises(LabError, match="take a smaller model"):
        refuse_beyond(memory(plan), GIB, FOLDER, QWEN3_06B, plan, 2)


def test_row_bins_are_even_and_cover_every_position() -> None:
    plan = planned(1000, row_bins=256)
    assert plan.row_starts[0] == 0
    assert plan.row_ends[-1] == 1000
    assert (plan.row_starts[1:] == plan.row_ends[:-1]).all()
    assert np.diff(plan.row_starts).max() == 4
    assert len(plan.row_starts) <= 256
