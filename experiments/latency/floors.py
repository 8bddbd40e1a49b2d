"""The least work that a prefill and a decode step are, and so the least time, given the machine's ceilings.

Only what no engine can leave out is counted, so that a floor is a floor: the matrix products of every layer, the
attention of each computed token to those before it, one row of scores a sequence, every weight read once a step,
the keys and values of the context read once. Norms, softmax, sampling and activations in memory cost nothing here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, JsonValue, PositiveInt

from experiments.latency.roofline import Rates
from serving.errors import LabError

BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}


class Ceiling(StrEnum):
    """What a floor comes from."""

    BANDWIDTH = "memory bandwidth"
    RATE = "matrix rate"


class ModelFigures(BaseModel):
    """The sizes of a dense decoder with gated feed-forward layers (the Llama and Qwen families)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layers: PositiveInt
    hidden: PositiveInt
    intermediate: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    vocabulary: PositiveInt
    bytes_per_number: PositiveInt
    """Of weights and of keys and values alike."""

    @property
    def layer_weights(self) -> int:
        """Weights in the matrices of all layers: each takes two operations a token."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def score_weights(self) -> int:
        """Weights of the output matrix: read once a step, used once a sequence."""
        return self.vocabulary * self.hidden

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that every step reads: all but the input embedding, of which it reads single rows."""
        return self.bytes_per_number * (self.layer_weights + self.score_weights)

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values of one token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.bytes_per_number


@dataclass(frozen=True)
class Work:
    """What has to be done at least."""

    flop: float
    bytes: float

    def floor_s(self, ceilings: Rates) -> float:
        """The least seconds that it takes."""
        return max(self.flop / ceilings.flop_per_s, self.bytes / ceilings.bytes_per_s)

    def bound_by(self, ceilings: Rates) -> Ceiling:
        """Which ceiling the floor comes from."""
        rate = self.flop / ceilings.flop_per_s >= self.bytes / ceilings.bytes_per_s
        return Ceiling.RATE if rate else Ceiling.BANDWIDTH


def prefill_work(figures: ModelFigures, *, uncached: int, cached: int) -> Work:
    """The work until the first token of a prompt of which `cached` tokens need no computing.

    Computed token i attends to `cached` + i tokens, at 4 operations a head dimension (query · key and weight ·
    value).
    """
    pairs = uncached * cached + uncached * (uncached + 1) / 2
    attention = 4 * figures.layers * figures.heads * figures.head_dim * pairs
    flop = 2 * figures.layer_weights * uncached + 2 * figures.score_weights + attention
    return Work(flop, figures.weight_bytes + figures.kv_bytes * (cached + uncached))


def decode_work(figures: ModelFigures, *, batch: float, context: float, shared: float = 0) -> Work:
    """The work of one step that gives each of `batch` sequences a token; a mean over steps may be a fraction.

    `context` tokens a sequence, of which `shared` are the same for all and need be read once only.
    """
    attention = 4 * figures.layers * figures.heads * figures.head_dim * context
    flop = batch * (2 * (figures.layer_weights + figures.score_weights) + attention)
    read = shared + batch * max(0.0, context - shared)
    return Work(flop, figures.weight_bytes + figures.kv_bytes * read)


def read_figures(folder: Path, dtype: str) -> ModelFigures | None:
    """The figures in a model folder's `config.json`; None where this account does not fit.

    It does not fit experts, weights of fewer bytes than `dtype` has, layers that do not attend to everything before,
    and feed-forward layers without a gate (in practice those whose activation is not SiLU): a floor that counts work
    which is not done would be no floor.

    Raises: LabError for a folder without a readable configuration.
    """
    try:
        config: dict[str, JsonValue] = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise LabError(f"Expected a config.json in {folder}, got none that can be read ({error}).") from error
    needed = {
        name: config.get(name)
        for name in (
            "num_hidden_layers",
            "hidden_size",
            "intermediate_size",
            "num_attention_heads",
            "vocab_size",
        )
    }
    sizes = {name: value for name, value in needed.items() if isinstance(value, int)}
    if len(sizes) < len(needed) or dtype not in BYTES or not _is_counted(config):
        return None
    heads = sizes["num_attention_heads"]
    kv_heads, head_dim = config.get("num_key_value_heads"), config.get("head_dim")
    return ModelFigures(
        layers=sizes["num_hidden_layers"],
        hidden=sizes["hidden_size"],
        intermediate=sizes["intermediate_size"],
        heads=heads,
        kv_heads=kv_heads if isinstance(kv_heads, int) else heads,
        head_dim=head_dim if isinstance(head_dim, int) else sizes["hidden_size"] // heads,
        vocabulary=sizes["vocab_size"],
        bytes_per_number=BYTES[dtype],
    )


def _is_counted(config: dict[str, JsonValue]) -> bool:
    layers = config.get("layer_types")
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    return (
        config.get("hidden_act") == "silu"
        and config.get("quantization_config") is None
        and not any("expert" in name or "lora_rank" in name for name in config)
        and window is None
        and (not isinstance(layers, list) or set(map(str, layers)) == {"full_attention"})
    )


def declared_dtype(folder: Path) -> str | None:
    """The number type that a model's own configuration names: what `--dtype auto` takes.

    None where it names none, and where it names float32: a device that prefers a half type takes that instead, and
    which one it prefers is its own. Source: vLLM, `_resolve_auto_dtype`.
    """
    config = json.loads((folder / "config.json").read_bytes())
    named = config.get("torch_dtype", config.get("dtype"))
    return named if isinstance(named, str) and named != "float32" else None
