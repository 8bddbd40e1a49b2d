from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from tokenizers import Tokenizer

from serving.errors import LabError
from serving.models.gguf_config import GgufModel, describe_gguf
from serving.models.gguf_header import GgufHeader, GgufValue, read_gguf_header


@pytest.fixture(scope="module")
def qwen(tiny_gguf: Path) -> GgufHeader:
    return read_gguf_header(tiny_gguf)


def changed(header: GgufHeader, **entries: GgufValue) -> GgufHeader:
    renamed = {key.replace("__", "."): value for key, value in entries.items()}
    return replace(header, metadata=MappingProxyType({**header.metadata, **renamed}))


def tokenizer_of(model: GgufModel) -> Tokenizer:
    return Tokenizer.from_str(json.dumps(model.files["tokenizer.json"]))


def test_configuration_carries_the_gguf_numbers(qwen: GgufHeader) -> None:
    config = describe_gguf(qwen).files["config.json"]
    assert config["architectures"] == ["Qwen2ForCausalLM"]
    assert (config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]) == (
        256,
        4,
        2,
    )
    assert (config["rms_norm_eps"], config["rope_theta"]) == (1e-06, 1e6)
    assert config["torch_dtype"] == "float32"


def test_embeddings_are_tied_exactly_when_there_is_no_output_tensor(
    qwen: GgufHeader, make_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    tied = read_gguf_header(make_gguf(tmp_path / "tied.gguf", omit="output.weight"))
    assert describe_gguf(qwen).files["config.json"]["tie_word_embeddings"] is False
    assert describe_gguf(tied).files["config.json"]["tie_word_embeddings"] is True


@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_every_token_keeps_its_id(family: str, make_gguf: Callable[..., Path], tmp_path: Path) -> None:
    header = read_gguf_header(make_gguf(tmp_path / "m.gguf", family))
    tokenizer = tokenizer_of(describe_gguf(header))
    tokens = header.metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, tuple)
    wanted = {token: index for index, token in enumerate(tokens) if token != "[PAD1]"}
    assert tokenizer.get_vocab(with_added_tokens=True) == wanted
    ids = tokenizer.encode("<|im_start|> the<|im_end|>").ids
    assert ids == [wanted["<|im_start|>"], wanted["Ġthe"], wanted["<|im_end|>"]]


def test_smollm_splits_digits_one_by_one(make_gguf: Callable[..., Path], tmp_path: Path) -> None:
    header = read_gguf_header(make_gguf(tmp_path / "m.gguf", "llama"))
    words = tokenizer_of(describe_gguf(header)).pre_tokenizer.pre_tokenize_str("in 42")
    assert [word for word, _ in words] == ["in", "Ġ", "4", "2"]


def test_end_and_padding_come_from_the_metadata(qwen: GgufHeader) -> None:
    files = describe_gguf(qwen).files
    assert files["tokenizer_config.json"]["eos_token"] == "<|im_end|>"
    assert files["generation_config.json"]["eos_token_id"] == files["config.json"]["eos_token_id"]
    assert files["generation_config.json"]["pad_token_id"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"general__architecture": "mamba"}, "qwen2 or llama, but got 'mamba'"),
        ({"tokenizer__ggml__pre": "deepseek"}, "split as 'deepseek'"),
        ({"tokenizer__ggml__model": "llama"}, "the GGUF has 'llama'"),
        ({"qwen2__rope__scaling__type": "yarn"}, "unscaled rotary positions, but the GGUF says 'yarn'"),
        ({"tokenizer__ggml__add_bos_token": True}, "adds no first token"),
        ({"tokenizer__ggml__merges": ("ab",)}, "merges of two tokens, but the GGUF has 'ab'"),
        ({"tokenizer__ggml__token_type": (1, 1)}, "but the GGUF has 2"),
        (
            {"qwen2__block_count": "two"},
            "a whole number under 'qwen2.block_count' in the GGUF, but it has 'two'",
        ),
        ({"qwen2__attention__head_count": 7}, "Expected 7 heads to divide the hidden size 256"),
    ],
)
def test_what_cannot_be_converted_faithfully_is_refused(
    qwen: GgufHeader, change: dict[str, GgufValue], message: str
) -> None:
    with pytest.raises(LabError, match=message):
        describe_gguf(changed(qwen, **change))
