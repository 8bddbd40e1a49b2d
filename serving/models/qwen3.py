"""Qwen3 without weights: its tokenizer from tiktoken ranks, and a folder of a given shape."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from serving.errors import LabError
from serving.models.bpe import (
    AddedToken,
    Splitter,
    byte_alphabet,
    byte_text,
    merges_from_ranks,
    parse_ranks,
    tokenizer_json,
)
from serving.models.catalogue import ShapeRecipe
from serving.models.files import CONFIG_LAYOUT, write_json

_RANK_COUNT = 151_643
_END_OF_TEXT, _END_OF_TURN = 151_643, 151_645

# In id order from 151,643 on. The first 14 are special; the rest stay visible in decoded text, because
# parsers of tool calls and of reasoning read them there.
_SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
_VISIBLE = (
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)


def qwen3_added_tokens(first_id: int = _RANK_COUNT) -> tuple[AddedToken, ...]:
    """Qwen3's 26 added tokens, numbered from `first_id`."""
    texts = (*_SPECIAL, *_VISIBLE)
    return tuple(AddedToken(first_id + i, text, i < len(_SPECIAL)) for i, text in enumerate(texts))


def qwen3_tokenizer(ranks: Mapping[bytes, int]) -> dict[str, JsonValue]:
    """Qwen3's `tokenizer.json` from the ranks in `qwen.tiktoken`.

    Equal as data to the published one (a test in the full suite compares them).
    """
    alphabet = byte_alphabet()
    vocabulary = {byte_text(token, alphabet): rank for token, rank in ranks.items()}
    merges = [
        (byte_text(left, alphabet), byte_text(right, alphabet)) for left, right in merges_from_ranks(ranks)
    ]
    return tokenizer_json(vocabulary, merges, qwen3_added_tokens(len(ranks)), Splitter.QWEN2)


def build_shape(into: Path, recipe: ShapeRecipe, ranks_file: bytes, template: str) -> None:
    """Write configuration, tokenizer and chat template of a Qwen3 of this shape into `into`."""
    ranks = parse_ranks(ranks_file)
    if len(ranks) != _RANK_COUNT:
        raise LabError(f"Expected Qwen's {_RANK_COUNT} ranks, but the rank file has {len(ranks)}.")
    write_json(into / "tokenizer.json", qwen3_tokenizer(ranks))
    write_json(into / "tokenizer_config.json", _tokenizer_config(recipe))
    write_json(into / "config.json", shape_config(recipe))
    write_json(into / "generation_config.json", _generation_config())
    (into / "chat_template.jinja").write_text(template, "utf-8")


def shape_config(recipe: ShapeRecipe) -> dict[str, JsonValue]:
    """The `config.json` of a Qwen3 of this shape."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": _END_OF_TEXT,
        "eos_token_id": _END_OF_TURN,
        "head_dim": recipe.head_dim,
        "hidden_act": "silu",
        "hidden_size": recipe.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": recipe.intermediate_size,
        "max_position_embeddings": recipe.max_position_embeddings,
        "max_window_layers": recipe.num_hidden_layers,
        "num_attention_heads": recipe.num_attention_heads,
        "num_hidden_layers": recipe.num_hidden_layers,
        "num_key_value_heads": recipe.num_key_value_heads,
        "rms_norm_eps": recipe.rms_norm_eps,
        "rope_scaling": None,
        "rope_theta": recipe.rope_theta,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "transformers_version": CONFIG_LAYOUT,
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": recipe.vocab_size,
    }


def _tokenizer_config(recipe: ShapeRecipe) -> dict[str, JsonValue]:
    return {
        # Takes tokenizer.json as it is; transformers 5 goes by the model type where it knows one.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "clean_up_tokenization_spaces": False,
        "model_max_length": recipe.max_position_embeddings,
    }


def _generation_config() -> dict[str, JsonValue]:
    """Qwen3's published one: both end tokens end a generation."""
    return {
        "bos_token_id": _END_OF_TEXT,
        "do_sample": True,
        "eos_token_id": [_END_OF_TURN, _END_OF_TEXT],
        "pad_token_id": _END_OF_TEXT,
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
    }
