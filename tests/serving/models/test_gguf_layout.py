from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from serving.models.gguf_header import GgufHeader, GgufTensor
from serving.models.gguf_layout import Family, plan_layout

PARTS = (
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
    "attn_norm",
    "ffn_norm",
)


def header(vocabulary: int, hidden: int) -> GgufHeader:
    shapes = {"token_embd.weight": (vocabulary, hidden), "output_norm.weight": (hidden,)}
    shapes |= {f"blk.0.{p}.weight": (hidden,) if "norm" in p else (hidden, hidden) for p in PARTS}
    tensors = tuple(GgufTensor(name, shape, 0, 32) for name, shape in shapes.items())
    return GgufHeader({}, tensors)


@given(vocabulary=st.integers(1, 300_000), hidden=st.sampled_from([8, 64, 896, 5120]))
def test_pieces_fill_the_file_without_gap_or_overlap(vocabulary: int, hidden: int) -> None:
    layout = plan_layout(header(vocabulary, hidden), Family.LLAMA, blocks=1, heads=2, kv_heads=2)
    at = len(layout.header)
    for piece in layout.pieces:
        assert piece.target == at
        assert piece.rows > 0
        at += piece.bytes
    assert at == layout.total_bytes


def test_the_header_is_what_safetensors_expects() -> None:
    layout = plan_layout(header(100, 8), Family.LLAMA, blocks=1, heads=2, kv_heads=2)
    length = int.from_bytes(layout.header[:8], "little")
    described = json.loads(layout.header[8:])
    assert length == len(layout.header) - 8
    assert length % 8 == 0
    assert described.pop("__metadata__") == {"format": "pt"}
    for entry in described.values():
        start, end = entry["data_offsets"]
        assert end - start == 4 * math.prod(entry["shape"])


def test_only_llama_query_and_key_rows_are_permuted() -> None:
    layout = plan_layout(header(100, 8), Family.LLAMA, blocks=1, heads=4, kv_heads=2)
    permuted = {piece.name: piece.permuted_heads for piece in layout.pieces if piece.permuted_heads}
    prefix = "model.layers.0.self_attn."
    assert permuted == {f"{prefix}q_proj.weight": 4, f"{prefix}k_proj.weight": 2}
