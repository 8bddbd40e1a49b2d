"""What the statistics would be wrong for is refused by name, before the run where the configuration tells."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from serving.errors import UsageError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


class Unsupported(StrEnum):
    """Why a model or a call is refused."""

    SLIDING_WINDOW = "sliding window"
    SOFT_CAP = "soft-capped scores"
    SINK_LOGITS = "learned sink logits"
    POSITION_BIAS = "position bias"
    PADDING = "padding or a custom mask"
    BATCH = "batch"
    NOT_CAUSAL = "non-causal attention"
    DROPOUT = "attention dropout"
    PAGED_CACHE = "paged cache"
    UNKNOWN_CLASS = "unknown attention class"
    UNEVEN_HEADS = "heads that differ from layer to layer"


class UnsupportedAttentionError(UsageError):
    """The model or the call does something that plain causal softmax attention does not."""

    def __init__(self, reason: Unsupported, what: str, advice: str) -> None:
        super().__init__(f"Expected plain causal attention, got {what} ({reason.value}); {advice}.")
        self.reason = reason


KNOWN_ATTENTION: Final = frozenset(
    {
        "GraniteAttention",
        "LlamaAttention",
        "MistralAttention",
        "Olmo2Attention",
        "Phi3Attention",
        "Qwen2Attention",
        "Qwen3Attention",
        "Qwen3MoeAttention",
        "SmolLM3Attention",
    }
)
"""transformers' classes that are held against their own eager attention in the tests."""

_OTHER_MODEL: Final = "capture a Llama-like model (Qwen2, Qwen3, SmolLM, Llama, Mistral …)"


def refuse_model(model: PreTrainedModel, tokens: int) -> None:
    """Raise `UnsupportedAttentionError` when `tokens` tokens of this model cannot be captured exactly."""
    config = model.config
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedAttentionError(
            Unsupported.NOT_CAUSAL, f"{config.model_type}, which has an encoder", _OTHER_MODEL
        )
    if (cap := getattr(config, "attn_logit_softcapping", None)) is not None:
        raise UnsupportedAttentionError(Unsupported.SOFT_CAP, f"scores capped at {cap:g}", _OTHER_MODEL)
    found = [module for module in model.modules() if hasattr(module, "layer_idx") and _is_attention(module)]
    for module in found:
        name = type(module).__name__
        if getattr(module, "sinks", None) is not None:
            raise UnsupportedAttentionError(
                Unsupported.SINK_LOGITS, f"{name} with a learned logit beside the keys", _OTHER_MODEL
            )
        if not getattr(module, "is_causal", True):
            raise UnsupportedAttentionError(Unsupported.NOT_CAUSAL, f"{name} that looks ahead", _OTHER_MODEL)
        refuse_window(_window(module, config), tokens)
        if name not in KNOWN_ATTENTION:
            raise UnsupportedAttentionError(Unsupported.UNKNOWN_CLASS, name, _OTHER_MODEL)
    if len(found) != config.num_hidden_layers:
        raise UnsupportedAttentionError(
            Unsupported.UNKNOWN_CLASS,
            f"{len(found)} attention modules for {config.num_hidden_layers} layers",
            _OTHER_MODEL,
        )


def refuse_window(window: int | None, tokens: int) -> None:
    """Raise when a sliding window hides keys from a sequence of `tokens`; a longer one changes nothing."""
    if window is not None and tokens > window:
        raise UnsupportedAttentionError(
            Unsupported.SLIDING_WINDOW,
            f"a window of {window:,} tokens over {tokens:,}",
            f"shorten the sequence to {window:,} tokens, where the window hides nothing",
        )


def refuse_call(
    query: torch.Tensor,
    key: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    extras: dict[str, object],
) -> None:
    """Raise when one call of the attention function is more than causal softmax of one sequence.

    `extras` are the keyword arguments that a model passes on: transformers 5 carries soft caps (`softcap`),
    sink logits (`s_aux`), windows and biases there.
    """
    for name, reason in _REFUSED_EXTRAS.items():
        if extras.get(name) is not None:
            raise UnsupportedAttentionError(reason, f"a call with `{name}`", _OTHER_MODEL)
    if extras.get("is_causal") is False:
        raise UnsupportedAttentionError(Unsupported.NOT_CAUSAL, "a call that looks ahead", _OTHER_MODEL)
    window = extras.get("sliding_window")
    refuse_window(window if isinstance(window, int) else None, key.shape[2])
    if dropout:
        raise UnsupportedAttentionError(
            Unsupported.DROPOUT, f"dropout {dropout:g}", "call model.eval() first"
        )
    if query.shape[0] != 1:
        raise UnsupportedAttentionError(
            Unsupported.BATCH, f"{query.shape[0]} sequences at once", "capture them one by one"
        )
    asked, held = query.shape[2], key.shape[2]
    if mask is None and 1 < asked < held:
        # sdpa would align this upper left: only right for a cache with room behind the sequence.
        raise UnsupportedAttentionError(
            Unsupported.PADDING, f"{asked} rows over {held} keys without a mask", "use a cache that grows"
        )


def refuse_mask(mask: torch.Tensor, asked: int, held: int) -> None:
    """Raise unless `mask` lets the last `asked` of `held` positions see themselves and all before."""
    import torch

    rows = torch.arange(held - asked, held, device=mask.device)
    causal = torch.arange(held, device=mask.device) <= rows[:, None]
    shown = mask if mask.dtype == torch.bool else mask == 0
    hidden = ~shown if mask.dtype == torch.bool else mask <= torch.finfo(mask.dtype).min / 2
    if mask.shape[-2:] != causal.shape or not bool((shown == causal).all() and (hidden != causal).all()):
        raise UnsupportedAttentionError(
            Unsupported.PADDING,
            f"a mask of shape {tuple(mask.shape)} other than the causal one",
            "capture one sequence without padding, with a cache that grows",
        )


_REFUSED_EXTRAS: Final = {
    "softcap": Unsupported.SOFT_CAP,
    "s_aux": Unsupported.SINK_LOGITS,
    "position_bias": Unsupported.POSITION_BIAS,
    "cache": Unsupported.PAGED_CACHE,
}


def _is_attention(module: torch.nn.Module) -> bool:
    return type(module).__name__.endswith("Attention")


def _window(module: torch.nn.Module, config: object) -> int | None:
    """The module's own window where it has the attribute, else the configuration's."""
    value = getattr(module, "sliding_window", getattr(config, "sliding_window", None))
    return value if isinstance(value, int) else None
