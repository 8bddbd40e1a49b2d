"""The second implementation: every statistic from whole matrices, in float64, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoConfig, PreTrainedModel

from serving.attention import ModelIdentity, Segment, SegmentKind, Segments, build_segments
from serving.attention.model import build_random
from serving.attention.plan import Plan

Matrix = NDArray[np.float64]

SMALL = {
    "vocab_size": 128,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}


IDENTITY = ModelIdentity(
    name="small",
    architecture="Qwen3ForCausalLM",
    weights_sha256=None,
    random_seed=0,
    num_layers=1,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    dtype="float32",
)


def small_model(model_type: str, **changes: object) -> PreTrainedModel:
    """A random model of this type, its weights widened so that rows differ from uniform ones."""
    model = build_random(AutoConfig.for_model(model_type, **{**SMALL, **changes}))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "q_proj" in name or "k_proj" in name or "qkv_proj" in name:
                weight.mul_(12)
    return model


def random_ids(tokens: int, seed: int = 0) -> list[int]:
    return torch.randint(0, 128, (tokens,), generator=torch.Generator().manual_seed(seed)).tolist()


def parts(owners: Sequence[int], *, sink: bool = True) -> Segments:
    """Segments from a number for every token."""
    segments = [Segment(id=f"part-{i}", label=f"part {i}", kind=SegmentKind.TEXT) for i in owners]
    return build_segments(segments, prompt_tokens=len(owners), sink=sink)


def eager_matrices(model: PreTrainedModel, ids: Sequence[int]) -> NDArray[np.float32]:
    """[L, H, T, T] as transformers' eager attention computes them."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            given = model(torch.tensor([list(ids)]), use_cache=False, output_attentions=True)
    finally:
        model.set_attn_implementation(before)
    return torch.stack(given.attentions)[:, 0].numpy()


def softmax_matrices(query: torch.Tensor, key: torch.Tensor, scale: float) -> Matrix:
    """[1, H, T, T] from query [H, T, D] and key [Hkv, T, D]."""
    keys = key.double().repeat_interleave(len(query) // len(key), 0)
    scores = query.double() @ keys.transpose(1, 2) * scale
    hidden = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(hidden, -torch.inf), -1)[None].numpy()


def reference(plan: Plan, matrices: NDArray[Any]) -> dict[str, Matrix]:
    """What a recorder must return, from all matrices [layers, heads, T, T] of the model."""
    taken = matrices[list(plan.layers)][:, list(plan.heads)].astype(np.float64)
    tokens, at = plan.tokens, plan.captured
    place = np.arange(tokens)
    pooled = np.zeros((len(plan.row_starts), tokens))
    pooled[plan.row_of[at], at] = 1
    pooled /= pooled.sum(1, keepdims=True)
    count = len(plan.segments.segments)
    hot = [np.eye(count)[owners] for owners in plan.owners]
    captured = np.zeros(tokens)
    captured[at] = 1
    mean = taken @ place
    spread = np.sqrt(np.maximum((taken * (place - mean[..., None]) ** 2).sum(-1), 0))
    bins = np.eye(plan.bins)[place // plan.bin_width]
    sums = {
        "mass": pooled @ (taken @ hot[0]),
        "sink": taken[..., 0] @ pooled.T,
        "between": np.stack([(one * captured[:, None]).T @ (taken @ one) for one in hot], axis=1),
        "entropy": pooled_rows(pooled, -(taken * np.log(np.where(taken > 0, taken, 1))).sum(-1)),
        "peak": pooled_rows(pooled, taken.max(-1)),
        "distance": pooled_rows(pooled, place - mean),
        "distance_sd": pooled_rows(pooled, spread),
        "received": captured @ taken,
        "heatmap": (bins * captured[:, None]).T @ (taken @ bins),
    }
    if plan.options.full_rows:
        sums["full"] = taken[:, :, list(plan.options.full_rows)]
    return sums


def pooled_rows(pooled: Matrix, values: Matrix) -> Matrix:
    return values @ pooled.T


def assert_equal(plan: Plan, got: dict[str, Any], matrices: NDArray[Any], tolerance: float = 1e-4) -> None:
    """Every array within `tolerance`: a mass or nats as they are, sums over rows per row, distances per length.

    `matrices` are of all layers of the model; they are read layer by layer, for they are large.
    """
    for place, layer in enumerate(plan.layers):
        one = replace(plan, layers=(0,))
        wanted = reference(one, matrices[layer : layer + 1])
        for name, array in got.items():
            summed = len(plan.captured) if name in ("received", "between", "heatmap") else 1
            scale = plan.tokens if name.startswith("distance") else summed
            worst = np.abs(array[place] - wanted[name][0]).max(initial=0) / scale
            assert worst <= tolerance, f"{name} of layer {layer} is off by {worst:.2e}"
