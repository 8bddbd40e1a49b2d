"""The few numbers that a prediction needs from a server, read without sending a prompt."""

from __future__ import annotations

import httpx
from pydantic import BaseModel, ConfigDict, JsonValue

from serving.client.metrics import CacheConfig, read_cache_config
from serving.errors import LabError


class ServerFacts(BaseModel):
    """What vLLM tells beside OpenAI's API; None for what this server does not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str | None
    max_model_len: int | None
    """Prompt and output tokens of one request."""
    block_size: int | None
    """Tokens per KV-cache block."""
    num_blocks: int | None
    """Blocks of the pool, the reserved one included."""


def read_server_facts(base_url: str, model: str, api_key: str | None = None) -> ServerFacts:
    """Ask `/v1/models`, `/version` and `/metrics`; `model` is the name the server knows.

    Raises `LabError` when the server does not answer.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        with httpx.Client(base_url=base_url, headers=headers, timeout=30.0, trust_env=False) as http:
            listing, version, metrics = (http.get(path) for path in ("/v1/models", "/version", "/metrics"))
    except httpx.TransportError as error:
        raise LabError(f"Expected a server at {base_url}, got none ({error}): is it running?") from error
    cache = read_cache_config(metrics.text) if metrics.is_success else CacheConfig()
    named = _json(version).get("version")
    return ServerFacts(
        version=named if isinstance(named, str) else None,
        max_model_len=_longest(_json(listing).get("data"), model),
        block_size=cache.block_size,
        num_blocks=cache.num_gpu_blocks,
    )


def _json(reply: httpx.Response) -> dict[str, JsonValue]:
    try:
        body = reply.json() if reply.is_success else None
    except ValueError:
        body = None  # an answer in another form tells nothing
    return body if isinstance(body, dict) else {}


def _longest(data: JsonValue, model: str) -> int | None:
    for entry in data if isinstance(data, list) else ():
        if isinstance(entry, dict) and entry.get("id") == model:
            longest = entry.get("max_model_len")
            return longest if isinstance(longest, int) else None
    return None
