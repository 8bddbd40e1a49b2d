"""Captures of small random models beside transformers' own eager attention."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import DynamicCache, PreTrainedModel

from serving.attention import CaptureOptions, RowMode
from serving.attention.hook import recording
from serving.attention.model import head_shape
from serving.attention.plan import Plan, make_plan
from serving.attention.recorder import Recorder
from serving.attention.refuse import KNOWN_ATTENTION
from tests.support.attention import assert_equal, eager_matrices, parts, random_ids, small_model

TOKENS = 97
FAMILIES = {
    "granite": {},
    "llama": {},
    "mistral": {"sliding_window": 512, "head_dim": 8},
    "olmo2": {},
    "phi3": {},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "qwen3_moe": {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    "smollm3": {"no_rope_layers": [1, 0]},
}


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    return small_model(request.param, **FAMILIES[request.param])


@pytest.fixture(scope="module")
def qwen3() -> PreTrainedModel:
    return small_model("qwen3", head_dim=16)


def plan_for(model: PreTrainedModel, **options: object) -> Plan:
    every = CaptureOptions(rows=RowMode.EVERY, shuffles=2, full_rows=(0, 5, TOKENS - 1))
    chosen = every.model_copy(update=options)
    return make_plan(head_shape(model), parts([i // 11 % 5 for i in range(TOKENS)]), chosen)


def test_every_statistic_of_every_layer_head_and_row_is_that_of_eager(model: PreTrainedModel) -> None:
    ids = random_ids(TOKENS)
    plan = plan_for(model)
    recorder = Recorder(plan)
    with torch.inference_mode(), recording(model, recorder):
        model(torch.tensor([ids]), use_cache=False)
    assert_equal(plan, recorder.finish(), eager_matrices(model, ids))


def test_the_families_under_test_are_those_that_are_accepted() -> None:
    seen = {
        type(module).__name__
        for family, changes in FAMILIES.items()
        for module in small_model(family, **changes).modules()
        if hasattr(module, "layer_idx") and type(module).__name__.endswith("Attention")
    }
    assert seen == KNOWN_ATTENTION


def test_logits_are_those_of_plain_sdpa_bit_for_bit_in_one_pass(model: PreTrainedModel) -> None:
    ids = torch.tensor([random_ids(TOKENS)])
    with torch.inference_mode():
        plain = model(ids, use_cache=False).logits
        with recording(model, Recorder(plan_for(model))):
            watched = model(ids, use_cache=False).logits
    assert torch.equal(plain, watched)


@pytest.mark.parametrize("chunk", [11, 40])
def test_logits_are_the_same_in_chunks_and_so_are_the_captures(model: PreTrainedModel, chunk: int) -> None:
    ids = torch.tensor([random_ids(TOKENS)])

    def run() -> list[torch.Tensor]:
        cache = DynamicCache(config=model.config)
        pieces = range(0, TOKENS, chunk)
        return [model(ids[:, at : at + chunk], past_key_values=cache).logits for at in pieces]

    one_pass, in_chunks = Recorder(plan_for(model)), Recorder(plan_for(model))
    with torch.inference_mode():
        plain = run()
        with recording(model, in_chunks):
            watched = run()
        with recording(model, one_pass):
            model(ids, use_cache=False)
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    a, b = in_chunks.finish(), one_pass.finish()
    for name in a:
        rows = TOKENS if name in ("received", "between", "heatmap") else 1
        allowed = 5e-3 if name.startswith("distance") else 1e-4
        assert np.abs(a[name] - b[name]).max() / rows <= allowed, name


def test_logits_do_not_depend_on_how_many_cores_do_the_statistics(qwen3: PreTrainedModel) -> None:
    ids = torch.tensor([random_ids(TOKENS)])
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        recorder = Recorder(plan_for(qwen3))
        with torch.inference_mode():
            plain = qwen3(ids, use_cache=False).logits
            with recording(qwen3, recorder):
                watched = qwen3(ids, use_cache=False).logits
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(plain, watched)
    assert_equal(recorder.plan, recorder.finish(), eager_matrices(qwen3, ids[0].tolist()))


def test_generation_with_a_cache_is_watched_without_changing_a_token_or_logit(qwen3: PreTrainedModel) -> None:
    prompt = torch.tensor([random_ids(TOKENS - 20)])

    def generate() -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        done = qwen3.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            min_new_tokens=21,
            max_new_tokens=21,
            output_logits=True,
            return_dict_in_generate=True,
        )
        return done.sequences, done.logits

    recorder = Recorder(plan_for(qwen3))
    plain_ids, plain_logits = generate()
    with recording(qwen3, recorder):
        ids, logits = generate()
    assert torch.equal(ids, plain_ids)
    assert all(torch.equal(a, b) for a, b in zip(logits, plain_logits, strict=True))
    # The last token was chosen and never read, so TOKENS positions looked.
    assert_equal(recorder.plan, recorder.finish(), eager_matrices(qwen3, ids[0, :TOKENS].tolist()))


def test_only_the_asked_layers_and_heads_are_kept(qwen3: PreTrainedModel) -> None:
    ids = random_ids(TOKENS)
    plan = plan_for(qwen3, layers=(1,), heads=(0, 2, 5), rows=RowMode.POOLED, row_bins=10)
    recorder = Recorder(plan)
    with torch.inference_mode(), recording(qwen3, recorder):
        qwen3(torch.tensor([ids]), use_cache=False)
    arrays = recorder.finish()
    assert arrays["mass"].shape == (1, 3, 10, len(plan.segments.segments))
    assert_equal(plan, arrays, eager_matrices(qwen3, ids))


def test_the_model_is_as_before_after_a_run_that_failed(qwen3: PreTrainedModel) -> None:
    with pytest.raises(ZeroDivisionError), recording(qwen3, Recorder(plan_for(qwen3))):
        raise ZeroDivisionError
    assert qwen3.config._attn_implementation == "sdpa"
    with torch.inference_mode():
        qwen3(torch.tensor([random_ids(8)]))


def test_statistics_of_a_half_precision_model_are_float32_and_sum_to_one(qwen3: PreTrainedModel) -> None:
    narrow = small_model("qwen3", head_dim=16).to(torch.bfloat16)
    recorder = Recorder(plan_for(narrow))
    with torch.inference_mode(), recording(narrow, recorder):
        narrow(torch.tensor([random_ids(TOKENS)]), use_cache=False)
    mass = recorder.finish()["mass"]
    assert mass.dtype == np.float32
    assert np.abs(mass.sum(-1) - 1).max() <= 1e-4
