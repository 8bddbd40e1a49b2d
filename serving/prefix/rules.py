"""Which engines follow the rule that the predictor knows, and why the others are refused."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from serving.prefix.keys import HashAlgorithm


class CacheKind(StrEnum):
    """How one group of layers keeps its KV; every kind but full attention has a hit rule of its own."""

    FULL = "full"
    SLIDING_WINDOW = "sliding_window"
    CHUNKED_LOCAL = "chunked_local"
    STATE_SPACE = "state_space"
    CROSS = "cross"


class Unsupported(StrEnum):
    """Why a prediction would be a guess."""

    CACHING_OFF = "prefix caching is off: nothing is cached"
    SEVERAL_GROUPS = "several cache groups must agree on one hit"
    SLIDING_WINDOW = "a sliding window keeps only the blocks near the end of a hit"
    CHUNKED_LOCAL = "chunked local attention keeps only the last chunk"
    STATE_SPACE = "a state-space layer can resume only where a state was kept"
    CROSS_ATTENTION = "cross-attention blocks are not prefix cached"
    SPECULATIVE_DECODING = "speculative decoding drops one more block and holds slots for drafts"
    KV_CONNECTOR = "a KV connector can bring blocks from elsewhere"
    CONTEXT_PARALLEL = "decode context parallelism multiplies the block size"
    HASH_SEED_UNKNOWN = "the hash starts from random bytes, so block keys cannot be compared"
    OTHER_KEYS = "LoRA, images or prompt embeddings enter the block keys and are not in the ids"
    READS_SKIPPED = "prompt log-probabilities make a request skip the cache"


class EngineTraits(BaseModel):
    """What decides the rule of a running engine; the defaults are a plain decoder-only model on vLLM."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    caching: bool = True
    groups: tuple[CacheKind, ...] = Field(default=(CacheKind.FULL,), min_length=1)
    speculative_tokens: int = Field(default=0, ge=0)
    kv_connector: bool = False
    decode_context_parallel: int = Field(default=1, ge=1)
    hash_algorithm: str = HashAlgorithm.SHA256.value
    """As given to `--prefix-caching-hash-algo`."""
    compares_keys: bool = False
    """Whether block keys are to be held against the server's; counting tokens needs no keys."""
    other_keys: bool = False
    """Whether requests carry LoRA adapters, images or prompt embeddings."""
    prompt_logprobs: bool = False


_OWN_RULE = {
    CacheKind.SLIDING_WINDOW: Unsupported.SLIDING_WINDOW,
    CacheKind.CHUNKED_LOCAL: Unsupported.CHUNKED_LOCAL,
    CacheKind.STATE_SPACE: Unsupported.STATE_SPACE,
    CacheKind.CROSS: Unsupported.CROSS_ATTENTION,
}


def unsupported(traits: EngineTraits) -> tuple[Unsupported, ...]:
    """List every reason why the predictor must not speak for this engine; empty means that it may."""
    found = {_OWN_RULE[kind] for kind in traits.groups if kind in _OWN_RULE}
    known_hash = traits.hash_algorithm in set(HashAlgorithm)
    conditions = {
        Unsupported.CACHING_OFF: not traits.caching,
        Unsupported.SEVERAL_GROUPS: len(traits.groups) > 1,
        Unsupported.SPECULATIVE_DECODING: traits.speculative_tokens > 0,
        Unsupported.KV_CONNECTOR: traits.kv_connector,
        Unsupported.CONTEXT_PARALLEL: traits.decode_context_parallel > 1,
        Unsupported.HASH_SEED_UNKNOWN: traits.compares_keys and not known_hash,
        Unsupported.OTHER_KEYS: traits.other_keys,
        Unsupported.READS_SKIPPED: traits.prompt_logprobs,
    }
    found |= {reason for reason, holds in conditions.items() if holds}
    return tuple(reason for reason in Unsupported if reason in found)
