"""Whole servers for the probe: one that tells everything, one that tells nothing, some that lie."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tests.support.scripts import DONE, End, Json, Script, Send, chunk, sse


@dataclass(frozen=True)
class Reply:
    status: int
    body: object
    headers: Mapping[str, str] = field(default_factory=dict)


class Persona(Protocol):
    def answer(self, method: str, path: str, body: dict) -> Reply | Script: ...


_METRICS = """\
# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{{block_size="{block}",enable_prefix_caching="True",engine="0",num_gpu_blocks="512",\
kv_cache_size_tokens="{size}"}} 1.0
# HELP vllm:prefix_cache_queries_total Prefix cache queries
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{{engine="0",model_name="stub-model"}} 120.0
"""


def _words(body: dict) -> list[int]:
    """A toy tokenizer: one id a word, after a three-token template head."""
    text = " ".join(str(message["content"]) for message in body["messages"])
    return [1, 2, 3, *(10 + sum(map(ord, word)) % 9973 for word in text.split())]


class VllmLike:
    """Caches whole blocks per salt, always computes the last token anew, and reports it all."""

    def __init__(self, block: int = 16, reported_block: int | None = None) -> None:
        self._block = block
        self._reported_block = reported_block or block
        self._cached: set[tuple] = set()

    def answer(self, method: str, path: str, body: dict) -> Reply | Script:
        match method, path:
            case "GET", "/version":
                return Reply(200, {"version": "0.32.0"}, {"server": "uvicorn"})
            case "GET", "/v1/models":
                return Reply(200, {"data": [{"id": "stub-model", "owned_by": "vllm", "max_model_len": 4096}]})
            case "GET", "/metrics":
                block = self._reported_block
                return Reply(200, _METRICS.format(block=block, size=512 * block))
            case "POST", "/tokenize":
                return Reply(200, {"tokens": _words(body), "count": len(_words(body)), "max_model_len": 4096})
            case "POST", "/v1/chat/completions/render":
                ids = _words(body)
                return Reply(200, {"token_ids": ids, "token_offsets": [[i, i + 1] for i in range(len(ids))]})
            case "GET", "/reset_prefix_cache":
                return Reply(405, {"detail": "Method Not Allowed"}, {"allow": "POST"})
            case "POST", "/reset_prefix_cache":
                self._cached.clear()
                return Reply(200, {"success": True})
            case "POST", "/v1/chat/completions":
                return self.chat(body)
            case _:
                return Reply(404, {"detail": "Not Found"})

    def chat(self, body: dict) -> Reply | Script:
        ids = _words(body)
        return self.reply(body, ids, self.cached_tokens(ids, str(body.get("cache_salt"))))

    def cached_tokens(self, ids: list[int], salt: str) -> int:
        keys = [(salt, *ids[:end]) for end in range(self._block, len(ids) + 1, self._block)]
        hits = len(list(itertools.takewhile(self._cached.__contains__, keys)))
        self._cached.update(keys)
        return self._block * min(hits, (len(ids) - 1) // self._block)

    def reply(self, body: dict, ids: list[int], cached: int) -> Script:
        with_ids = bool(body.get("return_token_ids"))
        first = chunk({"role": "assistant", "content": ""}, prompt_ids=tuple(ids) if with_ids else None)
        token = chunk({"content": "ok"}, ids=[5] if with_ids else None, finish="length")
        counts: Json = {"prompt_tokens": len(ids), "completion_tokens": 1}
        counts["prompt_tokens_details"] = {"cached_tokens": cached}
        final: Json = {"choices": [], "usage": counts, "metrics": {"time_to_first_token_ms": 1.0}}
        return Script((Send(0, sse(first)), Send(1, sse(token)), Send(2, sse(final) + DONE)))


class Completing(VllmLike):
    """Takes token ids too, and answers with as many tokens as it is asked for, a millisecond apart."""

    def answer(self, method: str, path: str, body: dict) -> Reply | Script:
        if (method, path) == ("POST", "/v1/completions"):
            return self._complete(body)
        return super().answer(method, path, body)

    def _complete(self, body: dict) -> Script:
        ids, salt = body["prompt"], str(body.get("cache_salt"))
        cached = self.cached_tokens(ids, salt)
        output = list(range(2000, 2000 + body["max_tokens"]))
        self.cached_tokens(ids + output[:-1], salt)  # the last token of an answer is never run
        counts: Json = {"prompt_tokens": len(ids), "completion_tokens": len(output)}
        counts["prompt_tokens_details"] = {"cached_tokens": cached}
        final: Json = {"choices": [], "usage": counts}
        return Script((*self._pieces(ids, output), Send(3 + len(output), sse(final) + DONE)))

    def _pieces(self, ids: list[int], output: list[int]) -> Iterator[Send]:
        for place, token in enumerate(output):
            last = place == len(output) - 1
            choice: Json = {
                "index": 0,
                "text": "x",
                "token_ids": [token],
                "finish_reason": "length" if last else None,
            }
            if place == 0:
                choice["prompt_token_ids"] = ids
            yield Send(
                2 + place, sse({"id": "c", "object": "text_completion", "choices": [choice]}), token=True
            )


class CompletingLiar(Completing):
    """Reports every prompt as wholly cached."""

    def cached_tokens(self, ids: list[int], salt: str) -> int:
        return len(ids)


class Bare:
    """Chat completions and nothing else; refuses fields that it does not know, as strict servers do."""

    def answer(self, method: str, path: str, body: dict) -> Reply | Script:
        if (method, path) == ("GET", "/v1/models"):
            return Reply(200, {"data": [{"id": "bare-model"}]})
        if (method, path) != ("POST", "/v1/chat/completions"):
            return Reply(404, {"detail": "Not Found"})
        if unknown := {"cache_salt", "return_token_ids"} & body.keys():
            return Reply(400, {"error": {"message": f"unknown fields {sorted(unknown)}"}})
        return Script(
            (
                Send(0, sse(chunk({"role": "assistant"}))),
                Send(1, sse(chunk({"content": "ok"}, finish="stop")) + DONE),
            )
        )


class BoastingLiar(VllmLike):
    """Reports every prompt as wholly cached, the first time too."""

    def cached_tokens(self, ids: list[int], salt: str) -> int:
        return len(ids)


class Silent(VllmLike):
    """Says 0 cached tokens whatever happens: prefix caching is off, or the count is not wired up."""

    def cached_tokens(self, ids: list[int], salt: str) -> int:
        return 0


class Endless(VllmLike):
    """Begins an answer and never ends it."""

    def reply(self, body: dict, ids: list[int], cached: int) -> Script:
        begun = super().reply(body, ids, cached)
        return Script(begun.sends[:2], End.HANG)


class Garbler(Bare):
    """Answers every question with a page of HTML and 200, as a captive portal does."""

    def answer(self, method: str, path: str, body: dict) -> Reply | Script:
        return Reply(200, "<html>welcome</html>")


class Telling(VllmLike):
    """Tells its configuration as vLLM does in development mode; KV events go to `events`, if anywhere."""

    def __init__(self, events: Json | None, **config: Json) -> None:
        super().__init__()
        cache: Json = {"block_size": 16, "enable_prefix_caching": True, "prefix_caching_hash_algo": "sha256"}
        self._config: Json = {
            "cache_config": cache,
            "scheduler_config": {"async_scheduling": False},
            "kv_events_config": events,
            **config,
        }

    def answer(self, method: str, path: str, body: dict) -> Reply | Script:
        if method == "GET" and path.startswith("/server_info"):
            return Reply(200, {"vllm_config": self._config, "vllm_env": {}})
        return super().answer(method, path, body)


class Named(VllmLike):
    """Serves its model under the given name, as `vllm serve ./models/foo` does."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def answer(self, method: str, path: str, body: dict) -> Reply | Script:
        if (method, path) == ("GET", "/v1/models"):
            return Reply(200, {"data": [{"id": self._name, "owned_by": "vllm", "max_model_len": 4096}]})
        return super().answer(method, path, body)


class Escaper(VllmLike):
    """Says what a terminal would obey: an escape sequence, a C1 control, markup."""

    def answer(self, method: str, path: str, body: dict) -> Reply | Script:
        match method, path:
            case "GET", "/v1/models":
                return Reply(200, {"data": [{"id": "x\u202e", "owned_by": "\x1b]0;owned\x07"}]})
            case "GET", "/version":
                return Reply(200, {"version": "0\x9b2J[red]"})
            case "GET", "/metrics":
                return Reply(404, {"detail": "Not Found"})
        return super().answer(method, path, body)


PERSONAS: Mapping[str, Callable[[], Persona]] = {
    "vllm": VllmLike,
    "completing": Completing,
    "completing-liar": CompletingLiar,
    "bare": Bare,
    "boasting": BoastingLiar,
    "silent": Silent,
    "wrong-block": lambda: VllmLike(block=16, reported_block=24),
    "garbler": Garbler,
    "endless": Endless,
    "escaper": Escaper,
    "events-off": lambda: Telling(None),
    "events-elsewhere": lambda: Telling(
        {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": "ipc:///no/such/place"}
    ),
    "path-named": lambda: Named("./models/foo"),
    "torn-name": lambda: Named("torn\ud800"),
}
