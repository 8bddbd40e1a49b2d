"""From GGUF tensors to a safetensors layout: names, the q/k permutation, and pieces of work. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from serving.errors import LabError
from serving.models.gguf_header import GgufHeader, GgufTensor

FLOAT32_BYTES = 4
_PIECE_ELEMENTS = 1 << 20
"""4 MiB of float32; larger pieces leave the processor's caches and are up to six times slower."""


class Family(StrEnum):
    """The GGUF architectures that the lab converts."""

    QWEN2 = "qwen2"
    LLAMA = "llama"


_OUTSIDE = MappingProxyType(
    {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
    }
)
_IN_BLOCK = MappingProxyType(
    {
        "attn_norm.weight": "input_layernorm.weight",
        "attn_q.weight": "self_attn.q_proj.weight",
        "attn_k.weight": "self_attn.k_proj.weight",
        "attn_v.weight": "self_attn.v_proj.weight",
        "attn_output.weight": "self_attn.o_proj.weight",
        "ffn_norm.weight": "post_attention_layernorm.weight",
        "ffn_gate.weight": "mlp.gate_proj.weight",
        "ffn_up.weight": "mlp.up_proj.weight",
        "ffn_down.weight": "mlp.down_proj.weight",
    }
)
_QWEN2_BIASES = MappingProxyType(
    {f"attn_{part}.bias": f"self_attn.{part}_proj.bias" for part in ("q", "k", "v")},
)
_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of one tensor: what one worker step dequantises and writes."""

    name: str
    quantization: int
    columns: int
    source: int
    """Byte offset of the tensor's first row in the GGUF."""
    first_row: int
    rows: int
    permuted_heads: int
    """0, or the number of heads whose rotary halves are interleaved and must be taken apart."""
    target: int
    """Byte offset in the safetensors file."""

    @property
    def bytes(self) -> int:
        return self.rows * self.columns * FLOAT32_BYTES


@dataclass(frozen=True, slots=True)
class Layout:
    """A whole safetensors file before its tensors are there."""

    header: bytes
    """What the file begins with, its length field included."""
    pieces: tuple[Piece, ...]
    """In file order, without gaps."""
    total_bytes: int


def plan_layout(header: GgufHeader, family: Family, *, blocks: int, heads: int, kv_heads: int) -> Layout:
    """Lay out every tensor of `header` as float32 in a safetensors file.

    float32 holds each dequantised value exactly, bfloat16 would round it. The safetensors package can only
    save arrays that are in memory, so the header (8 bytes of length, JSON, padding to 8 bytes) is written
    here: https://github.com/huggingface/safetensors#format. Raises `LabError` when a tensor is missing or
    unknown.
    """
    names = _published_names(header.tensors, family, blocks)
    described: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for tensor in header.tensors:
        size = math.prod(tensor.shape) * FLOAT32_BYTES
        described[names[tensor.name]] = {
            "dtype": "F32",
            "shape": tensor.shape,
            "data_offsets": (at, at + size),
        }
        at += size
    text = json.dumps(described, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    prefix = len(text).to_bytes(8, "little") + text
    pieces: list[Piece] = []
    target = len(prefix)
    for tensor in header.tensors:
        permuted = _permuted_heads(tensor.name, family, heads, kv_heads)
        pieces += _pieces(tensor, names[tensor.name], permuted, target)
        target += math.prod(tensor.shape) * FLOAT32_BYTES
    return Layout(prefix, tuple(pieces), target)


def _published_names(tensors: Sequence[GgufTensor], family: Family, blocks: int) -> Mapping[str, str]:
    in_block = {**_IN_BLOCK, **(_QWEN2_BIASES if family is Family.QWEN2 else {})}
    wanted = {"token_embd.weight", "output_norm.weight"}
    wanted |= {f"blk.{block}.{part}" for block in range(blocks) for part in in_block}
    found = {tensor.name for tensor in tensors}
    if missing := sorted(wanted - found):
        raise LabError(
            f"Expected {len(wanted)} tensors of a {family} model with {blocks} blocks, but {len(missing)} "
            f"are missing, first {missing[0]!r}; the GGUF is not complete."
        )
    if unknown := sorted(found - wanted - {"output.weight"}):
        raise LabError(
            f"Expected the tensors of a {family} model, but the GGUF also has {unknown[0]!r} "
            f"({len(unknown)} unknown); this variant cannot be converted, use the model's safetensors."
        )
    if len(found) != len(tensors):
        raise LabError("Expected every tensor once, but the GGUF names one twice; get the file again.")

    def published(name: str) -> str:
        if match := _BLOCK.fullmatch(name):
            return f"model.layers.{match[1]}.{in_block[match[2]]}"
        return _OUTSIDE[name]

    return {name: published(name) for name in found}


def _permuted_heads(name: str, family: Family, heads: int, kv_heads: int) -> int:
    """llama.cpp stores llama's q and k rows with the rotary halves interleaved; qwen2's are as published."""
    if family is not Family.LLAMA:
        return 0
    return heads if ".attn_q." in name else kv_heads if ".attn_k." in name else 0


def _pieces(tensor: GgufTensor, name: str, permuted_heads: int, target: int) -> list[Piece]:
    columns = tensor.shape[-1]
    rows = math.prod(tensor.shape[:-1])
    step = rows if permuted_heads else max(1, _PIECE_ELEMENTS // columns)
    return [
        Piece(
            name=name,
            quantization=tensor.quantization,
            columns=columns,
            source=tensor.offset,
            first_row=first,
            rows=min(step, rows - first),
            permuted_heads=permuted_heads,
            target=target + first * columns * FLOAT32_BYTES,
        )
        for first in range(0, rows, step)
    ]
