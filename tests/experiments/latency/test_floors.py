from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.latency.floors import Ceiling, ModelFigures, decode_work, prefill_work, read_figures
from experiments.latency.measures import step_batches
from experiments.latency.roofline import Ceilings
from experiments.latency.selfcheck import check_shares, shares
from serving.errors import InequalityError, LabError
from tests.support.made_load import exchange_of, record_of

QWEN3 = {
    "num_hidden_layers": 28,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "hidden_act": "silu",
}
FIGURES = ModelFigures(
    layers=2, hidden=8, intermediate=16, heads=2, kv_heads=1, head_dim=4, vocabulary=32, bytes_per_number=4
)
MACHINE = Ceilings(device="cpu", dtype="float32", threads=2, bytes_per_s=1e10, flop_per_s=1e11)


def test_the_figures_of_qwen3_have_as_many_weights_as_the_model_has(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN3))
    figures = read_figures(tmp_path, "bfloat16")
    assert figures is not None
    # 0.6 B in all and 0.44 B without the embedding, by the model's own page; norms are not matrices.
    assert figures.layer_weights == pytest.approx(0.44e9, rel=0.01)
    assert figures.layer_weights + figures.score_weights == pytest.approx(0.596e9, rel=0.01)
    assert figures.kv_bytes == 2 * 28 * 8 * 128 * 2


@pytest.mark.parametrize(
    "more",
    [
        {"quantization_config": {"bits": 4}},
        {"sliding_window": 4096},
        {"layer_types": ["full_attention", "sliding_attention"]},
        {"hidden_act": "gelu"},
        {"kv_lora_rank": 512},
    ],
    ids=lambda more: next(iter(more)),
)
def test_a_model_that_does_less_work_than_is_counted_has_no_floor(
    tmp_path: Path, more: dict[str, object]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**QWEN3, **more}))
    assert read_figures(tmp_path, "float32") is None


def test_a_window_that_is_switched_off_leaves_the_floor(tmp_path: Path) -> None:
    unused = {"sliding_window": 32768, "use_sliding_window": False, "quantization_config": None}
    (tmp_path / "config.json").write_text(json.dumps({**QWEN3, **unused}))
    assert read_figures(tmp_path, "float32") is not None


def test_a_model_with_experts_or_an_unknown_type_has_no_floor(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**QWEN3, "num_experts": 8}))
    assert read_figures(tmp_path, "float32") is None
    (tmp_path / "config.json").write_text(json.dumps(QWEN3))
    assert read_figures(tmp_path, "int4") is None
    with pytest.raises(LabError, match=r"config\.json"):
        read_figures(tmp_path / "nowhere", "float32")


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.integers(0, 400), st.integers(1, 400))
def test_computing_a_prompt_in_two_parts_is_as_much_attention_as_in_one(a: int, cached: int, b: int) -> None:
    whole = prefill_work(FIGURES, uncached=a + b, cached=cached).flop
    parts = sum(prefill_work(FIGURES, uncached=n, cached=k).flop for n, k in ((a, cached), (b, cached + a)))
    assert parts - whole == 2 * FIGURES.score_weights  # a second row of scores


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 64), st.integers(1, 4000), st.integers(0, 4000))
def test_a_step_for_more_sequences_is_never_less_work_and_a_shared_beginning_is_read_once(
    batch: int, context: int, shared: int
) -> None:
    shared = min(shared, context)
    step = decode_work(FIGURES, batch=batch, context=context, shared=shared)
    more = decode_work(FIGURES, batch=batch + 1, context=context, shared=shared)
    apart = decode_work(FIGURES, batch=batch, context=context)
    assert more.flop > step.flop and more.bytes >= step.bytes
    assert apart.bytes - step.bytes == FIGURES.kv_bytes * shared * (batch - 1)


def test_a_long_prefill_is_bound_by_the_matrix_rate_and_a_step_by_the_bandwidth() -> None:
    assert prefill_work(FIGURES, uncached=500, cached=0).bound_by(MACHINE) is Ceiling.RATE
    step = decode_work(FIGURES, batch=1, context=10)
    assert step.bound_by(MACHINE) is Ceiling.BANDWIDTH
    assert step.floor_s(MACHINE) == step.bytes / 1e10


def test_a_batch_is_counted_at_the_steps_of_each_call() -> None:
    alone = exchange_of(sent_s=100, arrivals_s=(1, 2, 3))
    pair = [exchange_of(sent_s=0, arrivals_s=(1, 2, 3, 4)), exchange_of(sent_s=1, arrivals_s=(1, 2))]
    assert step_batches([alone]) == [1, 1]
    assert sorted(step_batches([*pair, alone])) == [1, 1, 1, 1, 2, 2]


def records(ttft_s: float, *, seeds: int, tpot_s: float = 1.0) -> list:
    found = []
    for seed in range(seeds):
        found.append(
            record_of("ceilings", seed, {"ceiling_bytes_per_s": 1e9, "ceiling_flop_per_s": 1e10 + seed})
        )
        work = {"prefill_flop": 1e10, "prefill_bytes": 1e6, "decode_flop": 1e6, "decode_bytes": 1e8}
        times = {"ttft_mean_s": ttft_s, "tpot_mean_s": tpot_s}
        found.append(record_of("c1", seed, {**work, **times}))
    return found


def test_shares_are_of_the_ceiling_that_binds() -> None:
    prefill, decode = shares(records(2.0, seeds=5))
    assert (prefill.ceiling, decode.ceiling) == (Ceiling.RATE, Ceiling.BANDWIDTH)
    assert prefill.share.estimate == pytest.approx(0.5)
    assert decode.share.estimate == pytest.approx(0.1)
    assert not prefill.impossible
    check_shares(records(2.0, seeds=5))


@pytest.mark.parametrize("seeds", [1, 5])
def test_a_share_above_the_floor_fails_the_check_and_names_the_ceiling(seeds: int) -> None:
    with pytest.raises(InequalityError, match="matrix rate ceiling is too low"):
        check_shares(records(0.5, seeds=seeds))
    with pytest.raises(InequalityError, match="memory bandwidth ceiling is too low"):
        check_shares(records(2.0, seeds=seeds, tpot_s=0.05))


def test_a_share_above_the_floor_within_its_noise_passes() -> None:
    noisy = records(1.0, seeds=5)
    for place, factor in zip(range(1, 10, 2), (0.8, 0.9, 1.0, 1.1, 1.1), strict=True):
        measures = {**noisy[place].measures, "ttft_mean_s": factor}
        noisy[place] = noisy[place].model_copy(update={"measures": measures})
    found = shares(noisy)[0]
    assert found.share.estimate > 1
    check_shares(noisy)


def test_without_ceilings_there_are_no_shares() -> None:
    assert shares([record for record in records(0.1, seeds=2) if record.arm != "ceilings"]) == ()
