from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from serving.errors import LabError
from serving.models.gguf_folder import convert_gguf
from serving.models.gguf_worker import published_row_order
from serving.progress import Silent


def interleave(weights: NDArray[np.int64], heads: int) -> NDArray[np.int64]:
    """What llama.cpp's converter does to published q and k rows, written row by row."""
    half = len(weights) // heads // 2
    rows = [
        weights[head * 2 * half + part * half + i]
        for head in range(heads)
        for i in range(half)
        for part in range(2)
    ]
    return np.array(rows)


@given(heads=st.integers(1, 8), half=st.integers(1, 16))
def test_row_order_undoes_the_interleaving_of_rotary_halves(heads: int, half: int) -> None:
    published = np.arange(heads * half * 2)
    assert (interleave(published, heads)[published_row_order(len(published), heads)] == published).all()


def test_rows_that_are_not_whole_heads_are_refused() -> None:
    with pytest.raises(ValueError, match="30 rows cannot be 4 heads"):
        published_row_order(30, 4)


@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_every_tensor_equals_the_reference_dequantisation(
    family: str, make_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    import gguf
    from safetensors.numpy import load_file

    source = make_gguf(tmp_path / "m.gguf", family)
    made = tmp_path / "made"
    made.mkdir()
    converted = convert_gguf(source, made, progress=Silent())
    ours = load_file(made / "model.safetensors")
    reference = gguf.GGUFReader(source).tensors
    assert len(ours) == len(reference)
    for tensor in reference:
        wanted = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if family == "llama" and ("attn_q." in tensor.name or "attn_k." in tensor.name):
            heads = 4 if "attn_q." in tensor.name else 2
            wanted_back = interleave(ours[published(tensor.name)], heads)
            assert wanted_back.tobytes() == wanted.tobytes(), tensor.name
        else:
            assert ours[published(tensor.name)].tobytes() == wanted.astype("<f4").tobytes(), tensor.name
    content = (made / "model.safetensors").read_bytes()
    assert converted.weights_sha256 == hashlib.sha256(content).hexdigest()


def test_a_gguf_that_ends_inside_a_tensor_names_the_tensor(tiny_gguf: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn.gguf"
    torn.write_bytes(tiny_gguf.read_bytes()[:-2000])
    made = tmp_path / "made"
    made.mkdir()
    with pytest.raises(
        LabError, match=r"a worker failed: ValueError: model\.layers\.1\..*the file ends at byte"
    ):
        convert_gguf(torn, made, progress=Silent())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"omit": "blk.1.ffn_norm.weight"}, "1 are missing, first 'blk.1.ffn_norm.weight'"),
        ({"extra": "rope_freqs.weight"}, "also has 'rope_freqs.weight'"),
    ],
)
def test_a_missing_or_an_unknown_tensor_is_refused(
    change: dict[str, str], message: str, make_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    source = make_gguf(tmp_path / "m.gguf", **change)
    made = tmp_path / "made"
    made.mkdir()
    with pytest.raises(LabError, match=message):
        convert_gguf(source, made, progress=Silent())


def published(name: str) -> str:
    outside = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
    }
    if name in outside:
        return outside[name]
    _, block, part, kind = name.split(".")
    new = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    return f"model.layers.{block}.{new[part]}.{kind}"
