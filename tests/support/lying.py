"""A server that caches as the rule says, whole pool and all, and reports what it is told to report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from serving.prefix import Predictor
from tests.support.personas import Persona, Reply, VllmLike
from tests.support.scripts import DONE, Json, Script, Send, chunk, sse

BLOCK = 16
NUM_BLOCKS = 400


class Seen(NamedTuple):
    """One request: the truth, and what a liar may make of it."""

    prompt: int
    cached: int
    shared: int
    unsalted: int
    before: int
    """What was true of the request before."""


def _up(seen: Seen) -> int:
    return -(-seen.shared // BLOCK) * BLOCK


LIES: Mapping[str, Callable[[Seen], int | None]] = {
    "honest": lambda seen: seen.cached,
    "silent": lambda seen: None,
    "always-zero": lambda seen: 0,
    "prompt-minus-one": lambda seen: seen.prompt - 1,
    "prompt-minus-one-when-warm": lambda seen: seen.prompt - 1 if seen.cached else 0,
    "whole-prompt": lambda seen: seen.prompt,
    "doubled": lambda seen: 2 * seen.cached,
    "previous": lambda seen: seen.before,
    "unrounded": lambda seen: min(seen.shared, seen.prompt - 1),
    "rounded-up": _up,
    "rounded-to-nearest": lambda seen: (min(seen.shared, seen.prompt - 1) + BLOCK // 2) // BLOCK * BLOCK,
    "last-token": lambda seen: seen.shared // BLOCK * BLOCK,
    "one-fewer": lambda seen: max(seen.cached - BLOCK, 0),
    "no-salts": lambda seen: seen.unsalted,
    "other-block": lambda seen: min(seen.shared, seen.prompt - 1) // 24 * 24,
    "sometimes": lambda seen: seen.cached + (BLOCK if seen.prompt % 7 == 0 else 0),
}


class Proven(VllmLike):
    """Answers on both surfaces and keeps true counters; `lie` makes the reported number of the true ones."""

    def __init__(
        self,
        lie: str = "honest",
        *,
        resets: bool = True,
        admits: bool = True,
        told_block: int = BLOCK,
        told_blocks: int = NUM_BLOCKS,
        counts: bool = True,
    ) -> None:
        super().__init__(BLOCK)
        self._lie = LIES[lie]
        self._resets = resets
        self._admits = admits
        self._told_block = told_block
        self._told_blocks = told_blocks
        self._counts = counts
        self._predictor = Predictor(BLOCK, NUM_BLOCKS)
        self._unsalted = Predictor(BLOCK, NUM_BLOCKS)
        self._stored: list[tuple[str | None, list[int]]] = []
        self._before = 0
        self._queries = self._hits = 0

    def answer(self, method: str, path: str, body: dict) -> Reply | Script:
        match method, path:
            case "GET", "/metrics":
                return Reply(200, self._metrics())
            case "GET", "/v1/models":
                return Reply(200, {"data": [{"id": "stub-model", "owned_by": "vllm", "max_model_len": 512}]})
            case "POST", "/reset_prefix_cache":
                if self._resets:
                    self._predictor = Predictor(BLOCK, NUM_BLOCKS)
                return Reply(200, {"success": self._admits})
            case "POST", "/v1/completions":
                return self._serve(body, list(body["prompt"]), "text")
        return super().answer(method, path, body)

    def chat(self, body: dict) -> Script:
        words = [w for m in body["messages"] for w in (m["role"], *str(m["content"]).split())]
        return self._serve(body, [1, 2, 3, *(10 + sum(map(ord, word)) % 9973 for word in words)], "delta")

    def _serve(self, body: dict, ids: list[int], surface: str) -> Script:
        salt = body.get("cache_salt")
        output = [5 + (sum(ids) + number) % 90 for number in range(int(body["max_tokens"]))]
        cached = self._predictor.predict_next(ids, salt).cached_tokens
        self._predictor.record(output)
        unsalted = self._unsalted.predict_next(ids).cached_tokens
        self._unsalted.record(output)
        shared = max((_in_common(ids, kept) for of, kept in self._stored if of == salt), default=0)
        self._stored.append((salt, (ids + output)[:-1]))
        self._queries += len(ids)
        self._hits += cached
        told = self._lie(Seen(len(ids), cached, shared, unsalted, self._before))
        self._before = cached
        details = None if told is None else {"cached_tokens": told}
        usage: Json = {
            "prompt_tokens": len(ids),
            "completion_tokens": len(output),
            "prompt_tokens_details": details,
        }
        sends = [Send(0, sse(_first(surface, ids)))]
        sends += [Send(0, sse(_token(surface, token))) for token in output]
        return Script((*sends, Send(0, sse({"choices": [], "usage": usage}) + DONE)))

    def _metrics(self) -> str:
        config = (
            f'block_size="{self._told_block}",num_gpu_blocks="{self._told_blocks}",kv_cache_size_tokens="1"'
        )
        text = f"# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{{{config}}} 1.0\n"
        if self._counts:
            for name, value in (("queries", self._queries), ("hits", self._hits)):
                text += f"# TYPE vllm:prefix_cache_{name} counter\nvllm:prefix_cache_{name}_total {value}.0\n"
        return text


def _in_common(left: list[int], right: list[int]) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )


def _first(surface: str, ids: list[int]) -> Json:
    if surface == "delta":
        return chunk({"role": "assistant", "content": ""}, prompt_ids=tuple(ids))
    return {"choices": [{"index": 0, "text": "", "prompt_token_ids": ids, "token_ids": []}]}


def _token(surface: str, token: int) -> Json:
    if surface == "delta":
        return chunk({"content": "x"}, ids=[token])
    return {"choices": [{"index": 0, "text": "x", "token_ids": [token]}]}


LIARS: Mapping[str, Callable[[], Persona]] = {
    **{f"proven-{name}": lambda name=name: Proven(name) for name in LIES},
    "proven-deaf-reset": lambda: Proven(resets=False),
    "proven-honest-refusal": lambda: Proven(resets=False, admits=False),
    "proven-shy-reset": lambda: Proven(admits=False),
    "proven-smaller-pool": lambda: Proven(told_blocks=NUM_BLOCKS + 1),
    "proven-larger-pool": lambda: Proven(told_blocks=NUM_BLOCKS - 1),
    "proven-other-block-told": lambda: Proven(told_block=24),
    "proven-uncounted": lambda: Proven(counts=False),
}
