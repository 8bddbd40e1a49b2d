"""What a server can tell, found by asking it: every capability with how it is known or why it is not."""

from __future__ import annotations

from dataclasses import dataclass

import httpx2
from pydantic import JsonValue

from serving.client import Client
from serving.client.async_client import api_root
from serving.client.metrics import CacheConfig, read_cache_config
from serving.errors import LabError
from serving.probe.canary import no_canary, prove_cache_reporting
from serving.probe.capabilities import Fact, ServedModel, ServerCapabilities
from serving.text import find_surrogate


def probe_server(
    base_url: str, api_key: str | None = None, *, reset: bool = False, timeout_s: float = 120.0
) -> ServerCapabilities:
    """Ask the server everything that the lab can use; sends up to six short prompts of one output token.

    Changes nothing on the server beyond its cache, except when `reset` allows one prefix-cache reset. Raises
    `LabError` when nothing answers there or the API key is refused; anything else unknown is in the result.
    """
    api_url = api_root(base_url)
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    with httpx2.Client(headers=headers, timeout=timeout_s, trust_env=False) as http:
        asker = _Asker(http, api_url.removesuffix("/v1"))
        listing = asker.ask("GET", "/v1/models")
        if listing.status in (401, 403):
            raise LabError(
                f"Expected {base_url} to accept the API key, got HTTP {listing.status}: give the right key."
            )
        if listing.status is None:
            raise LabError(f"Expected a server at {base_url}, got none ({listing.text}): is it running?")
        models = _models(listing)
        metrics = asker.ask("GET", "/metrics")
        cache = read_cache_config(metrics.text) if metrics.status == 200 else CacheConfig()
        version = asker.ask("GET", "/version")
        # A name with half a character in it cannot be sent back, so such a model cannot be asked anything.
        model = next((found for found in models.value or () if find_surrogate(found.id) is None), None)
        question: dict[str, JsonValue] = {"messages": [{"role": "user", "content": "ping"}]}
        if model is not None:
            question["model"] = model.id
        render = asker.ask("POST", "/v1/chat/completions/render", question | {"return_token_offsets": True})
        tokenize = asker.ask("POST", "/tokenize", question)
        reset_found = _reset(asker, reset)
    canary = no_canary("no model is listed under a name that UTF-8 can carry")
    if model is not None:
        with Client(base_url, api_key, idle_timeout_s=timeout_s) as client:
            canary = prove_cache_reporting(client, model, cache.block_size)
    return ServerCapabilities(
        base_url=base_url,
        engine=_engine(listing, metrics),
        version=_version(version),
        models=models,
        block_size=_cache_fact(metrics, cache.block_size, "block_size"),
        num_gpu_blocks=_cache_fact(metrics, cache.num_gpu_blocks, "num_gpu_blocks"),
        kv_cache_tokens=_cache_fact(metrics, cache.kv_cache_tokens, "kv_cache_size_tokens"),
        cache_salt=canary.cache_salt,
        cached_tokens=canary.cached_tokens,
        cached_tokens_exact=canary.exact,
        token_ids=canary.token_ids,
        per_request_metrics=canary.metrics,
        render=_list_fact(render, "token_ids"),
        render_offsets=_list_fact(render, "token_offsets"),
        tokenize=_list_fact(tokenize, "tokens"),
        reset_prefix_cache=reset_found,
        canary=canary.calls,
    )


@dataclass(frozen=True)
class _Answer:
    endpoint: str
    status: int | None
    """None: no answer."""
    text: str
    json: JsonValue
    server: str | None

    def field(self, name: str) -> JsonValue:
        return self.json.get(name) if self.status == 200 and isinstance(self.json, dict) else None

    @property
    def why_not(self) -> str:
        if self.status is None:
            return f"{self.endpoint} did not answer: {self.text}"
        return f"{self.endpoint} answered HTTP {self.status}"


@dataclass(frozen=True)
class _Asker:
    http: httpx2.Client
    root: str

    def ask(self, method: str, path: str, body: dict[str, JsonValue] | None = None) -> _Answer:
        endpoint = f"{method} {path}"
        try:
            reply = self.http.request(method, self.root + path, json=body)
        except httpx2.TransportError as exc:
            return _Answer(endpoint, None, str(exc), None, None)
        try:
            data: JsonValue = reply.json()
        except ValueError:
            data = None  # /metrics is text; for the rest, `field` finds nothing in it
        return _Answer(endpoint, reply.status_code, reply.text, data, reply.headers.get("server"))


def _models(listing: _Answer) -> Fact[tuple[ServedModel, ...]]:
    data = listing.field("data")
    if not isinstance(data, list):
        return Fact(value=None, how=f"{listing.why_not}, without a list of models")
    found = []
    for entry in data:
        if isinstance(entry, dict) and isinstance(name := entry.get("id"), str):
            longest = entry.get("max_model_len")
            found.append(ServedModel(id=name, max_model_len=longest if isinstance(longest, int) else None))
    return Fact(value=tuple(found), how=listing.endpoint)


def _engine(listing: _Answer, metrics: _Answer) -> Fact[str]:
    if metrics.status == 200:
        for line in metrics.text.splitlines():
            name, colon, _ = line.removeprefix("# HELP ").partition(":")
            if colon and name.isidentifier():
                return Fact(value=name, how=f"the names of its metrics ({metrics.endpoint})")
    data = listing.field("data")
    first = data[0] if isinstance(data, list) and data else None
    owner = first.get("owned_by") if isinstance(first, dict) else None
    if isinstance(owner, str):
        return Fact(value=owner, how=f"`owned_by` in {listing.endpoint}")
    if listing.server is not None:
        return Fact(value=listing.server, how="its `server` header")
    return Fact(value=None, how="no metrics, no `owned_by`, no `server` header")


def _version(answer: _Answer) -> Fact[str]:
    found = answer.field("version")
    if isinstance(found, str):
        return Fact(value=found, how=answer.endpoint)
    return Fact(value=None, how=answer.why_not)


def _cache_fact(metrics: _Answer, value: int | None, label: str) -> Fact[int]:
    if value is not None:
        return Fact(value=value, how=f"{label} of vllm:cache_config_info ({metrics.endpoint})")
    why = metrics.why_not if metrics.status != 200 else f"{metrics.endpoint} has no single {label}"
    return Fact(value=None, how=why)


def _list_fact(answer: _Answer, name: str) -> Fact[bool]:
    if answer.status not in (200, 404, 405, 501):
        return Fact(value=None, how=answer.why_not)
    found = isinstance(answer.field(name), list)
    how = f"{answer.endpoint} gave `{name}`" if found else f"{answer.why_not}, without `{name}`"
    return Fact(value=found, how=how)


def _reset(asker: _Asker, allowed: bool) -> Fact[bool]:
    if allowed:
        answer = asker.ask("POST", "/reset_prefix_cache")
        if answer.status == 200:
            # 200 does not mean done: the body says false while blocks are held.
            done = answer.field("success") is not False
            return Fact(
                value=True, how=f"{answer.endpoint} {'reset the cache' if done else 'is there, but refused'}"
            )
        return Fact(value=None if answer.status is None else False, how=answer.why_not)
    # A GET on a route that takes only POST: 405 tells that it is there, and nothing is reset.
    answer = asker.ask("GET", "/reset_prefix_cache")
    if answer.status == 405:
        return Fact(value=True, how=f"{answer.endpoint} answered HTTP 405: there, not tried")
    return Fact(value=False if answer.status == 404 else None, how=answer.why_not)
