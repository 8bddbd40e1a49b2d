"""The sizes of a model that memory depends on, from its `config.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from serving.engine.config import Dtype

DTYPE_BYTES: Final = {Dtype.FLOAT32: 4, Dtype.BFLOAT16: 2, Dtype.FLOAT16: 2}


class ModelShape(BaseModel):
    """The numbers of a `config.json` that memory depends on."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    num_hidden_layers: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt
    head_dim: PositiveInt
    vocab_size: PositiveInt
    tie_word_embeddings: bool
    stored_dtype: Dtype
    """The number format of the weight files."""

    @property
    def parameters(self) -> int:
        """Parameters of a dense llama-like decoder with these sizes (norms left out: below 0.1 %)."""
        queries = self.hidden_size * self.num_attention_heads * self.head_dim
        keys_values = self.hidden_size * self.num_key_value_heads * self.head_dim
        layer = 2 * queries + 2 * keys_values + 3 * self.hidden_size * self.intermediate_size
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        return self.num_hidden_layers * layer + embeddings

    def kv_bytes_per_token(self, dtype: Dtype) -> int:
        """Bytes one token takes in the KV cache: keys and values of every layer."""
        width = DTYPE_BYTES[self.stored_dtype if dtype is Dtype.AUTO else dtype]
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim * width


def read_shape(folder: Path) -> ModelShape | None:
    """The sizes in `config.json`, or None where it describes no dense decoder of this form."""
    try:
        facts = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None  # the engine says what it makes of it
    if not isinstance(facts, dict):
        return None
    heads, hidden = facts.get("num_attention_heads"), facts.get("hidden_size")
    if not isinstance(heads, int) or not isinstance(hidden, int) or heads < 1:
        return None
    stored = str(facts.get("dtype") or facts.get("torch_dtype") or "float32")
    known = {
        "num_key_value_heads": heads,
        "head_dim": hidden // heads,
        "tie_word_embeddings": False,
        **{name: value for name, value in facts.items() if value is not None},
        "stored_dtype": stored if stored in set(Dtype) - {Dtype.AUTO} else Dtype.FLOAT32,
    }
    if not {"intermediate_size", "num_hidden_layers", "vocab_size"} <= known.keys():
        return None
    try:
        return ModelShape.model_validate(known)
    except ValidationError:
        return None
