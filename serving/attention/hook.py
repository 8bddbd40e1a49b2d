"""The seam to transformers: an attention function that hands queries and keys to a recorder on the way.

The output is `sdpa_attention_forward`'s own, called with the very same arguments, so logits are those of
plain sdpa, bit for bit. The mask function is registered beside it: a name without one gets no mask at all,
and padding would be dropped in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from serving.attention.recorder import Recorder
from serving.attention.refuse import refuse_call, refuse_mask, refuse_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel

IMPLEMENTATION: Final = "ctxlab_statistics"
"""The name of the attention function; a model keeps it only inside `recording`."""


class _Listening:
    """A recorder, and the last mask that was found to be causal (all layers of a call share one)."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.checked: torch.Tensor | None = None


_listening: ContextVar[_Listening | None] = ContextVar("attention recorder", default=None)


@contextmanager
def recording(model: PreTrainedModel, recorder: Recorder) -> Iterator[None]:
    """While open, every call of `model` in this thread is observed by `recorder`; afterwards it is as before.

    Works for prefill, chunked prefill and `generate` with a cache that grows. Raises: UnsupportedAttentionError,
    here or in the model's call, for what would make the statistics wrong.
    """
    refuse_model(model, recorder.plan.tokens)
    AttentionInterface.register(IMPLEMENTATION, _attention)
    AttentionMaskInterface.register(IMPLEMENTATION, sdpa_mask)
    before = model.config._attn_implementation
    token = _listening.set(_Listening(recorder))
    try:
        model.set_attn_implementation(IMPLEMENTATION)
        yield
    finally:
        model.set_attn_implementation(before)
        _listening.reset(token)


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: object,
) -> tuple[torch.Tensor, None]:
    listening = _listening.get()
    if listening is not None:
        refuse_call(query, key, attention_mask, dropout, kwargs)
        if attention_mask is not None and attention_mask is not listening.checked:
            refuse_mask(attention_mask, query.shape[2], key.shape[2])
            listening.checked = attention_mask
        layer = module.layer_idx
        assert isinstance(layer, int)
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        listening.recorder.observe(layer, query[0], key[0], scale)
    plain: Callable[..., tuple[torch.Tensor, None]] = sdpa_attention_forward
    return plain(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs)
