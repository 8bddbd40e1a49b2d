"""What is known about a server: values with their evidence, unknowns with their reason."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

T = TypeVar("T")


class Fact(BaseModel, Generic[T]):
    """One thing known or not: `value` is None when unknown; `how` is the evidence, or the reason for None."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: T | None
    how: str


class ServedModel(BaseModel):
    """A model that the server offers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    max_model_len: int | None


class CanaryCall(BaseModel):
    """One of the prompts that prove cached-token reporting."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt_tokens: int | None
    cached_tokens: int | None
    expected_cached_tokens: int | None
    """None where the block size or the prompt's length is unknown."""


class ServerCapabilities(BaseModel):
    """What a server is and tells; a field that could not be found out says so."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_url: str
    engine: Fact[str]
    version: Fact[str]
    models: Fact[tuple[ServedModel, ...]]
    block_size: Fact[int]
    num_gpu_blocks: Fact[int]
    kv_cache_tokens: Fact[int]
    cache_salt: Fact[bool]
    """Whether another salt makes a cold start."""
    cached_tokens: Fact[bool]
    """Whether `usage` reports cached tokens that follow what was really sent before."""
    cached_tokens_exact: Fact[bool]
    """Whether they equal B · ⌊(n − 1) / B⌋ for a repeated prompt of n tokens: predictions can be exact."""
    token_ids: Fact[bool]
    per_request_metrics: Fact[bool]
    render: Fact[bool]
    render_offsets: Fact[bool]
    tokenize: Fact[bool]
    reset_prefix_cache: Fact[bool]
    """Presence only, unless the probe was told to reset."""
    canary: tuple[CanaryCall, ...]
