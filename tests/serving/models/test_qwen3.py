from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from serving.errors import LabError
from serving.models import load_catalogue
from serving.models.catalogue import ShapeRecipe
from serving.models.qwen3 import build_shape, qwen3_added_tokens, qwen3_tokenizer, shape_config


def test_the_added_tokens_have_the_published_ids() -> None:
    tokens = qwen3_added_tokens()
    ids = {token.text: token.id for token in tokens}
    assert len(tokens) == 26
    assert sum(token.special for token in tokens) == 14
    assert ids["<|endoftext|>"] == 151643
    assert (ids["<|im_start|>"], ids["<|im_end|>"]) == (151644, 151645)
    assert (ids["<tool_call>"], ids["</tool_call>"]) == (151657, 151658)
    assert (ids["<tool_response>"], ids["</tool_response>"]) == (151665, 151666)
    assert (ids["<think>"], ids["</think>"]) == (151667, 151668)


def test_a_tokenizer_of_bare_bytes_loads_and_follows_the_qwen_pipeline() -> None:
    ranks = {bytes([byte]): byte for byte in range(256)}
    tokenizer = Tokenizer.from_str(json.dumps(qwen3_tokenizer(ranks)))
    words = [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str("I'LL pay 42\n\n  now")]
    assert words == ["I", "'LL", "Ġpay", "Ġ", "4", "2", "ĊĊ", "Ġ", "Ġnow"]
    assert tokenizer.encode("a<think>").ids == [97, 256 + 24]


def test_the_configuration_is_qwen3_0_6b() -> None:
    recipe = load_catalogue()["qwen3-0.6b-shape"].recipe
    assert isinstance(recipe, ShapeRecipe)
    config = shape_config(recipe)
    assert config["num_attention_heads"] == 16
    assert config["num_key_value_heads"] == 8
    assert config["intermediate_size"] == 3072
    assert config["vocab_size"] == 151936
    assert config["tie_word_embeddings"] is True
    assert (config["bos_token_id"], config["eos_token_id"]) == (151643, 151645)


def test_a_rank_file_of_another_model_is_refused(tmp_path: Path) -> None:
    import base64

    recipe = load_catalogue()["qwen3-nano-shape"].recipe
    assert isinstance(recipe, ShapeRecipe)
    ranks = b"".join(base64.b64encode(bytes([byte])) + f" {byte}\n".encode() for byte in range(256))
    with pytest.raises(LabError, match="Expected Qwen's 151643 ranks, but the rank file has 256"):
        build_shape(tmp_path, recipe, ranks, "{{ messages }}")
