"""What would make the statistics wrong is refused by its name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import AutoConfig, AutoModel, PreTrainedModel, StaticCache

from serving.attention import CaptureOptions, Unsupported, UnsupportedAttentionError
from serving.attention.hook import recording
from serving.attention.model import build_empty
from serving.attention.plan import HeadShape, Plan, make_plan
from serving.attention.recorder import Recorder
from serving.attention.refuse import refuse_call, refuse_mask, refuse_model
from tests.support.attention import SMALL, parts, random_ids, small_model

TOKENS = 24


def plan() -> Plan:
    return make_plan(HeadShape(2, 6, 2, 8), parts([0] * TOKENS), CaptureOptions())


def refused(reason: Unsupported, call: Callable[[], object]) -> str:
    with pytest.raises(UnsupportedAttentionError) as caught:
        call()
    assert caught.value.reason is reason
    assert str(caught.value).startswith("Expected plain causal attention, got ")
    return str(caught.value)


@pytest.mark.parametrize("kind", ["mistral", "qwen3"])
def test_a_sliding_window_shorter_than_the_sequence_is_refused_with_the_length_that_works(kind: str) -> None:
    windowed = {"sliding_window": 16} | (
        {} if kind == "mistral" else {"layer_types": ["sliding_attention"] * 2}
    )
    model = small_model(kind, head_dim=8, **windowed)
    if kind == "qwen3":
        for layer in model.model.layers:
            layer.self_attn.sliding_window = 16
    assert "shorten the sequence to 16 tokens" in refused(
        Unsupported.SLIDING_WINDOW, lambda: refuse_model(model, 17)
    )
    refuse_model(model, 16)


def test_soft_capped_scores_are_refused() -> None:
    model = small_model("gemma2", head_dim=8, attn_logit_softcapping=50.0)
    assert "capped at 50" in refused(Unsupported.SOFT_CAP, lambda: refuse_model(model, TOKENS))


def test_learned_sink_logits_are_refused() -> None:
    config = {**SMALL, "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1}
    model = build_empty(AutoConfig.for_model("gpt_oss", **config))
    refused(Unsupported.SINK_LOGITS, lambda: refuse_model(model, TOKENS))


def test_an_attention_class_that_nobody_tested_is_refused_by_its_name() -> None:
    assert "CohereAttention" in refused(
        Unsupported.UNKNOWN_CLASS, lambda: refuse_model(small_model("cohere"), TOKENS)
    )


def test_a_model_that_looks_ahead_is_refused() -> None:
    model = small_model("llama")
    for layer in model.model.layers:
        layer.self_attn.is_causal = False
    assert "looks ahead" in refused(Unsupported.NOT_CAUSAL, lambda: refuse_model(model, TOKENS))


def test_a_model_with_an_encoder_is_refused() -> None:
    config = AutoConfig.for_model(
        "t5", vocab_size=64, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    model: PreTrainedModel = AutoModel.from_config(config)
    refused(Unsupported.NOT_CAUSAL, lambda: refuse_model(model, TOKENS))


def test_padding_is_refused_and_never_dropped_in_silence() -> None:
    model = small_model("qwen3", head_dim=8)
    ids = torch.tensor([random_ids(TOKENS)])
    mask = torch.ones_like(ids)
    mask[:, :3] = 0
    with torch.inference_mode(), recording(model, Recorder(plan())):
        refused(Unsupported.PADDING, lambda: model(ids, attention_mask=mask, use_cache=False))


def test_packed_sequences_are_refused() -> None:
    model = small_model("qwen3", head_dim=8)
    ids = torch.tensor([random_ids(TOKENS)])
    positions = torch.tensor([[*range(10), *range(TOKENS - 10)]])
    with torch.inference_mode(), recording(model, Recorder(plan())):
        refused(Unsupported.PADDING, lambda: model(ids, position_ids=positions, use_cache=False))


def test_a_cache_with_room_behind_the_sequence_is_refused() -> None:
    model = small_model("qwen3", head_dim=8)
    ids = torch.tensor([random_ids(TOKENS)])
    cache = StaticCache(config=model.config, max_cache_len=64)
    with torch.inference_mode(), recording(model, Recorder(plan())):
        refused(Unsupported.PADDING, lambda: model(ids, past_key_values=cache))


def test_several_sequences_at_once_are_refused() -> None:
    model = small_model("qwen3", head_dim=8)
    ids = torch.tensor([random_ids(TOKENS)] * 2)
    with torch.inference_mode(), recording(model, Recorder(plan())):
        refused(Unsupported.BATCH, lambda: model(ids, use_cache=False))


def test_dropout_is_refused() -> None:
    model = small_model("qwen3", head_dim=8, attention_dropout=0.25)
    model.train()
    ids = torch.tensor([random_ids(TOKENS)])
    with recording(model, Recorder(plan())):
        refused(Unsupported.DROPOUT, lambda: model(ids, use_cache=False))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("softcap", Unsupported.SOFT_CAP),
        ("s_aux", Unsupported.SINK_LOGITS),
        ("position_bias", Unsupported.POSITION_BIAS),
        ("cache", Unsupported.PAGED_CACHE),
    ],
)
def test_what_a_model_passes_to_its_attention_is_looked_at_in_every_call(
    name: str, reason: Unsupported
) -> None:
    query, key = torch.zeros(1, 6, TOKENS, 8), torch.zeros(1, 2, TOKENS, 8)
    refuse_call(query, key, None, 0.0, {name: None})
    refused(reason, lambda: refuse_call(query, key, None, 0.0, {name: torch.ones(1)}))


def test_a_call_that_says_it_is_not_causal_is_refused() -> None:
    query, key = torch.zeros(1, 6, TOKENS, 8), torch.zeros(1, 2, TOKENS, 8)
    refused(Unsupported.NOT_CAUSAL, lambda: refuse_call(query, key, None, 0.0, {"is_causal": False}))


@pytest.mark.parametrize("bias", [0.0, -1.0])
def test_an_additive_mask_is_taken_only_where_it_is_the_causal_one(bias: float) -> None:
    mask = torch.full((1, 1, 4, 9), torch.finfo(torch.float32).min).triu(6)
    refuse_mask(mask, 4, 9)
    mask[0, 0, 2, 1] = bias
    if bias:
        refused(Unsupported.PADDING, lambda: refuse_mask(mask, 4, 9))
    else:
        refuse_mask(mask, 4, 9)
