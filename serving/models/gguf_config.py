"""The JSON files beside the weights, from a GGUF's metadata: configuration, tokenizer, template. Pure."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from serving.errors import LabError
from serving.models.bpe import AddedToken, Splitter, tokenizer_json
from serving.models.files import CONFIG_LAYOUT
from serving.models.gguf_header import GgufHeader, GgufTensor, GgufValue
from serving.models.gguf_layout import Family

# GGUF's `tokenizer.ggml.token_type`.
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5


@dataclass(frozen=True, slots=True)
class GgufModel:
    """What a folder needs from a GGUF besides its tensors."""

    family: Family
    architecture: str
    blocks: int
    heads: int
    kv_heads: int
    files: Mapping[str, dict[str, JsonValue]]
    """File name → JSON content."""
    chat_template: str | None

    @property
    def max_position_embeddings(self) -> int:
        value = self.files["config.json"]["max_position_embeddings"]
        assert isinstance(value, int)
        return value


def describe_gguf(header: GgufHeader) -> GgufModel:
    """Translate a header; raises `LabError` on what the lab cannot convert faithfully."""
    metadata = _Metadata(header.metadata)
    family = _family(metadata)
    config = _config(metadata, family, header)
    template = metadata.optional_text("tokenizer.chat_template")
    return GgufModel(
        family=family,
        architecture=_ARCHITECTURES[family],
        blocks=metadata.number(f"{family}.block_count"),
        heads=metadata.number(f"{family}.attention.head_count"),
        kv_heads=metadata.number(f"{family}.attention.head_count_kv"),
        files={
            "config.json": config,
            "generation_config.json": _generation_config(metadata),
            "tokenizer.json": _tokenizer(metadata),
            "tokenizer_config.json": _tokenizer_config(metadata, family),
        },
        chat_template=template,
    )


_ARCHITECTURES: Mapping[Family, str] = {Family.QWEN2: "Qwen2ForCausalLM", Family.LLAMA: "LlamaForCausalLM"}


def _family(metadata: _Metadata) -> Family:
    name = metadata.text("general.architecture")
    if name not in set(Family):
        raise LabError(
            f"Expected a GGUF of the architecture {' or '.join(Family)}, but got {name!r}; "
            f"give the model's safetensors folder or hub id instead."
        )
    return Family(name)


def _config(metadata: _Metadata, family: Family, header: GgufHeader) -> dict[str, JsonValue]:
    scaling = metadata.optional_text(f"{family}.rope.scaling.type")
    if scaling not in (None, "none"):
        raise LabError(
            f"Expected unscaled rotary positions, but the GGUF says {scaling!r}; use its safetensors."
        )
    hidden = metadata.number(f"{family}.embedding_length")
    heads = metadata.number(f"{family}.attention.head_count")
    rows = _embedding_rows(header.tensors, hidden)
    if (tokens := len(metadata.items("tokenizer.ggml.tokens"))) > rows:
        raise LabError(f"Expected a row for each of {tokens} tokens, but the embedding has {rows}.")
    if hidden % heads:
        raise LabError(f"Expected {heads} heads to divide the hidden size {hidden}.")
    config: dict[str, JsonValue] = {
        "architectures": [_ARCHITECTURES[family]],
        "model_type": family.value,
        "bos_token_id": metadata.number("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.number("tokenizer.ggml.eos_token_id"),
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": metadata.number(f"{family}.feed_forward_length"),
        "max_position_embeddings": metadata.number(f"{family}.context_length"),
        "num_attention_heads": heads,
        "num_hidden_layers": metadata.number(f"{family}.block_count"),
        "num_key_value_heads": metadata.number(f"{family}.attention.head_count_kv"),
        "rms_norm_eps": metadata.real(f"{family}.attention.layer_norm_rms_epsilon"),
        "rope_theta": metadata.real(f"{family}.rope.freq_base"),
        "tie_word_embeddings": all(tensor.name != "output.weight" for tensor in header.tensors),
        "torch_dtype": "float32",
        "transformers_version": CONFIG_LAYOUT,
        "vocab_size": rows,
    }
    if family is Family.QWEN2:
        config |= {"use_sliding_window": False, "sliding_window": None}
    else:
        config |= {"attention_bias": False, "mlp_bias": False, "head_dim": hidden // heads}
    return config


def _embedding_rows(tensors: tuple[GgufTensor, ...], hidden: int) -> int:
    for tensor in tensors:
        if tensor.name == "token_embd.weight":
            if len(tensor.shape) != 2 or tensor.shape[1] != hidden:
                raise LabError(
                    f"Expected an embedding of (tokens, {hidden}), but its shape is {tensor.shape}."
                )
            return tensor.shape[0]
    raise LabError("Expected a tensor 'token_embd.weight' in the GGUF, but there is none.")


def _generation_config(metadata: _Metadata) -> dict[str, JsonValue]:
    """Only what the GGUF knows: it carries no sampling settings, and none are made up."""
    return {
        "bos_token_id": metadata.number("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.number("tokenizer.ggml.eos_token_id"),
        "pad_token_id": metadata.optional_number("tokenizer.ggml.padding_token_id"),
    }


def _tokenizer(metadata: _Metadata) -> dict[str, JsonValue]:
    model, splitter = metadata.text("tokenizer.ggml.model"), metadata.text("tokenizer.ggml.pre")
    if model != "gpt2" or splitter not in set(Splitter):
        raise LabError(
            f"Expected a 'gpt2' tokenizer split as {' or '.join(Splitter)}, but the GGUF has {model!r} split "
            f"as {splitter!r}; give the model's safetensors folder or hub id instead."
        )
    tokens = [str(token) for token in metadata.items("tokenizer.ggml.tokens")]
    types = metadata.items("tokenizer.ggml.token_type")
    if len(types) != len(tokens):
        raise LabError(f"Expected a type for each of {len(tokens)} tokens, but the GGUF has {len(types)}.")
    if unknown := set(types) - {_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED}:
        raise LabError(
            f"Expected token types 1, 3, 4 and 5, but the GGUF also has {sorted(map(str, unknown))}."
        )
    added = [
        AddedToken(index, token, kind == _CONTROL)
        for index, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (_CONTROL, _USER_DEFINED)
    ]
    # Unused tokens ("[PAD151665]") only fill the embedding up; in a vocabulary they would be words. An added
    # token below the last word must be in it: the tokenizers library numbers the others from the end on.
    last = max((index for index, kind in enumerate(types) if kind == _NORMAL), default=-1)
    vocabulary = {
        token: index
        for index, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if index <= last and kind != _UNUSED
    }
    return tokenizer_json(vocabulary, _merges(metadata), added, Splitter(splitter))


def _merges(metadata: _Metadata) -> list[tuple[str, str]]:
    merges: list[tuple[str, str]] = []
    for merge in metadata.items("tokenizer.ggml.merges"):
        left, separator, right = str(merge).partition(" ")
        if not (left and separator and right):
            raise LabError(f"Expected merges of two tokens, but the GGUF has {merge!r}.")
        merges.append((left, right))
    return merges


def _tokenizer_config(metadata: _Metadata, family: Family) -> dict[str, JsonValue]:
    tokens = metadata.items("tokenizer.ggml.tokens")

    def named(role: str) -> str | None:
        index = metadata.optional_number(f"tokenizer.ggml.{role}_token_id")
        return None if index is None else str(tokens[index])

    if metadata.optional_flag("tokenizer.ggml.add_bos_token"):
        raise LabError("Expected a tokenizer that adds no first token, but the GGUF asks for one.")
    return {
        # Takes tokenizer.json as it is; transformers 5 goes by the model type where it knows one.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": named("bos"),
        "eos_token": named("eos"),
        "pad_token": named("padding"),
        "unk_token": named("unknown"),
        "clean_up_tokenization_spaces": False,
        "model_max_length": metadata.number(f"{family}.context_length"),
    }


class _Metadata:
    """Typed look-ups; each raises `LabError` naming the key."""

    def __init__(self, entries: Mapping[str, GgufValue]) -> None:
        self._entries = entries

    def number(self, key: str) -> int:
        value = self.optional_number(key)
        if value is None:
            raise _missing(key, "a whole number", None)
        return value

    def optional_number(self, key: str) -> int | None:
        value = self._entries.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise _missing(key, "a whole number", value)

    def real(self, key: str) -> float:
        """The shortest decimal that is the stored float32: 1e-06, not 9.999999974752427e-07."""
        value = self._entries.get(key)
        if not isinstance(value, float):
            raise _missing(key, "a number", value)
        return next(
            short for digits in range(1, 18) if _float32(short := float(f"{value:.{digits}g}")) == value
        )

    def text(self, key: str) -> str:
        value = self.optional_text(key)
        if value is None:
            raise _missing(key, "text", None)
        return value

    def optional_text(self, key: str) -> str | None:
        value = self._entries.get(key)
        if value is None or isinstance(value, str):
            return value
        raise _missing(key, "text", value)

    def optional_flag(self, key: str) -> bool:
        value = self._entries.get(key, False)
        if isinstance(value, bool):
            return value
        raise _missing(key, "true or false", value)

    def items(self, key: str) -> tuple[int | float | bool | str, ...]:
        value = self._entries.get(key)
        if isinstance(value, tuple):
            return value
        raise _missing(key, "an array", value)


def _float32(value: float) -> float:
    (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    assert isinstance(rounded, float)
    return rounded


def _missing(key: str, wanted: str, value: GgufValue | None) -> LabError:
    came = "nothing" if value is None else f"{value!r:.60}"
    return LabError(f"Expected {wanted} under {key!r} in the GGUF, but it has {came}.")
