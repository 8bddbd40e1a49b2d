"""A model in this process, whose attention can be captured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, PreTrainedConfig, PreTrainedModel

from serving.attention.capture import ModelIdentity
from serving.attention.hook import recording
from serving.attention.plan import Arrays, HeadShape, Plan
from serving.attention.recorder import Recorder
from serving.attention.refuse import refuse_model
from serving.errors import UsageError
from serving.models import ModelFolder, Weights

RANDOM_SEED: Final = 0
"""Of the weights of a folder without any: two captures of one shape are of one model."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A causal language model in float32, in evaluation mode, with plain sdpa attention."""

    model: PreTrainedModel
    identity: ModelIdentity

    def run(
        self,
        plan: Plan,
        token_ids: Sequence[int],
        observed: Callable[[int], None] | None,
        cache: DynamicCache | None = None,
    ) -> Arrays:
        """Read all tokens once (in chunks where the plan says so) and return the recorder's sums.

        A `cache` that holds the first of the tokens spares reading these again; it holds all of them afterwards.
        Raises: UnsupportedAttentionError; LabError when the recorder finds a position missing, or a row is
        wanted that the cache holds already.
        """
        held = 0 if cache is None else cache.get_seq_length()
        recorder = Recorder(plan, observed, cached=held)
        ids = torch.tensor([list(token_ids)], device=self.model.device)
        chunk = plan.options.chunk
        with torch.inference_mode(), recording(self.model, recorder):
            if chunk is None and cache is None:
                self.model(ids, use_cache=False, logits_to_keep=1)
            else:
                cache = DynamicCache(config=self.model.config) if cache is None else cache
                chunk = chunk or plan.tokens
                for start in range(held, ids.shape[1], chunk):
                    piece = ids[:, start : start + chunk]
                    self.model(piece, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return recorder.finish()


def load(folder: ModelFolder) -> LoadedModel:
    """The folder's model in float32; a folder without weights gets random ones, always the same.

    Weights are read from safetensors only, and no code of the folder is run.
    """
    if folder.weights is Weights.DUMMY:
        model = build_random(AutoConfig.from_pretrained(folder.path, trust_remote_code=False))
    else:
        model = AutoModelForCausalLM.from_pretrained(
            folder.path,
            dtype=torch.float32,
            attn_implementation="sdpa",
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
        )
    shape = head_shape(model)
    identity = ModelIdentity(
        name=folder.name,
        architecture=folder.architecture,
        weights_sha256=folder.weights_sha256 if folder.weights is Weights.REAL else None,
        random_seed=RANDOM_SEED if folder.weights is Weights.DUMMY else None,
        num_layers=shape.num_layers,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        dtype=str(model.dtype).removeprefix("torch."),
    )
    return LoadedModel(model, identity)


def refuse_folder(folder: ModelFolder, tokens: int) -> None:
    """Refuse a model by its configuration alone, no weight loaded.

    Raises: UnsupportedAttentionError (`refuse_model`); UsageError for what is no causal language model.
    """
    try:
        model = build_empty(AutoConfig.from_pretrained(folder.path, trust_remote_code=False))
    except (ValueError, ImportError, AttributeError, TypeError) as error:  # what configurations fail with
        raise UsageError(
            f"Expected a causal language model that transformers knows in {folder.path}, got none "
            f"({str(error).splitlines()[0]}); capture a Llama-like model."
        ) from error
    refuse_model(model, tokens)


def build_empty(config: PreTrainedConfig) -> PreTrainedModel:
    """The modules of a model without memory behind its weights (torch's meta device)."""
    build: Callable[..., PreTrainedModel] = AutoModelForCausalLM.from_config
    with torch.device("meta"):
        # Eager exists for every model; one without sdpa must come as far as being refused by name.
        return build(config, attn_implementation="eager", trust_remote_code=False)


def build_random(config: PreTrainedConfig) -> PreTrainedModel:
    """A model of this configuration in float32 with random weights, the same ones each time."""
    build: Callable[..., PreTrainedModel] = AutoModelForCausalLM.from_config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(RANDOM_SEED)
        model = build(config, dtype=torch.float32, attn_implementation="sdpa", trust_remote_code=False)
    model.train(False)
    return model


def head_shape(model: PreTrainedModel) -> HeadShape:
    """The sizes of the model's attention, from its configuration."""
    config = model.config
    heads = config.num_attention_heads
    return HeadShape(
        num_layers=config.num_hidden_layers,
        num_heads=heads,
        num_kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
    )
