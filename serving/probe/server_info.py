"""What a vLLM in development mode tells of its own configuration: `/server_info`."""

from __future__ import annotations

from collections.abc import Mapping

import httpx
from pydantic import BaseModel, ConfigDict, JsonValue

from serving.engine.kv_events import KVEventsEndpoint
from serving.errors import LabError
from serving.prefix import CacheKind, EngineTraits

_TIMEOUT_S = 120.0  # the first answer waits for vLLM's look at its own machine


class ServerInfo(BaseModel):
    """The parts of vLLM's configuration that decide what can be predicted and watched."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    traits: EngineTraits
    asynchronous: bool | None
    """Whether the scheduler begins a step before it has seen the tokens of the one before."""
    kv_events: KVEventsEndpoint | None
    """None: KV events are off."""


def read_server_info(base_url: str, api_key: str | None = None) -> ServerInfo | None:
    """Ask `/server_info`; None where the server has no such page, or one in another form.

    Raises `LabError` when the server does not answer.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        with httpx.Client(base_url=base_url, headers=headers, timeout=_TIMEOUT_S, trust_env=False) as http:
            answer = http.get("/server_info", params={"config_format": "json"})
    except httpx.TransportError as error:
        raise LabError(f"Expected a server at {base_url}, got none ({error}): is it running?") from error
    try:
        body: JsonValue = answer.json() if answer.is_success else None
    except ValueError:
        body = None  # a page of another kind
    config = _object(body, "vllm_config")
    return parse_config(config) if "cache_config" in config else None


def parse_config(config: Mapping[str, JsonValue]) -> ServerInfo:
    """Read vLLM's configuration as `/server_info?config_format=json` dumps it; absent means the default."""
    cache, parallel = _object(config, "cache_config"), _object(config, "parallel_config")
    speculative, events = _object(config, "speculative_config"), _object(config, "kv_events_config")
    asynchronous = _object(config, "scheduler_config").get("async_scheduling")
    groups = [CacheKind.FULL]
    if cache.get("mamba_block_size") is not None:
        groups = [CacheKind.STATE_SPACE]
    elif cache.get("sliding_window") is not None:
        groups = [CacheKind.SLIDING_WINDOW]
    return ServerInfo(
        traits=EngineTraits(
            caching=cache.get("enable_prefix_caching") is not False,
            groups=tuple(groups),
            speculative_tokens=_number(speculative, "num_speculative_tokens", 0),
            kv_connector=bool(_object(config, "kv_transfer_config")),
            decode_context_parallel=_number(parallel, "decode_context_parallel_size", 1),
            hash_algorithm=str(cache.get("prefix_caching_hash_algo", EngineTraits().hash_algorithm)),
        ),
        asynchronous=asynchronous if isinstance(asynchronous, bool) else None,
        kv_events=_endpoint(events),
    )


def _endpoint(events: Mapping[str, JsonValue]) -> KVEventsEndpoint | None:
    live, replay = events.get("endpoint"), events.get("replay_endpoint")
    on = events.get("enable_kv_cache_events") is True and events.get("publisher") == "zmq"
    if not on or not isinstance(live, str):
        return None
    return KVEventsEndpoint(live=live, replay=replay if isinstance(replay, str) else None)


def _object(value: JsonValue | Mapping[str, JsonValue], name: str) -> Mapping[str, JsonValue]:
    found = value.get(name) if isinstance(value, Mapping) else None
    return found if isinstance(found, dict) else {}


def _number(value: Mapping[str, JsonValue], name: str, default: int) -> int:
    found = value.get(name)
    return found if isinstance(found, int) else default
