"""Proving that a server reports cached tokens, with a prompt that nobody else can have sent."""

from __future__ import annotations

import random
import secrets
from dataclasses import dataclass

from pydantic import JsonValue

from serving.client import ChatRequest, Client, ErrorKind, Exchange
from serving.probe.capabilities import CanaryCall, Fact, ServedModel

_TYPICAL_BLOCK = 128  # where the block size is unknown: the largest default of vLLM's backends
_BLOCKS = 4
_WORDS = (
    "amber", "basin", "cedar", "delta", "ember", "field", "grove", "harbor", "island", "jungle", "kernel",
    "lagoon", "meadow", "nectar", "orchard", "prairie", "quarry", "river", "stone", "timber", "valley",
)  # fmt: skip


@dataclass(frozen=True)
class Canary:
    """What a prompt of our own, sent again, proved."""

    calls: tuple[CanaryCall, ...]
    cache_salt: Fact[bool]
    cached_tokens: Fact[bool]
    exact: Fact[bool]
    token_ids: Fact[bool]
    metrics: Fact[bool]


def no_canary(why: str) -> Canary:
    """Nothing proved, for the one reason given."""
    return Canary((), *(Fact[bool](value=None, how=why) for _ in range(5)))


def prove_cache_reporting(client: Client, model: ServedModel, block_size: int | None) -> Canary:
    """Send a fresh prompt twice under one salt, a longer one twice, then the first under another salt.

    A server that refuses the salt and the token ids is asked without them. A call that fails makes unknown
    what it would have shown.
    """
    salt = secrets.token_hex(16)
    words = make_words(salt, _length(model, block_size))
    request = _request(model, words, salt)
    first, refused = client.chat(request), None
    if first.error is not None and first.error.kind is ErrorKind.HTTP_STATUS:
        request = request.model_copy(update={"cache_salt": None, "return_token_ids": False})
        refused, first = first.error.sentence, client.chat(request)
    if first.error is not None:
        return no_canary(f"a test prompt failed: {first.error.sentence}")
    second = client.chat(request)
    if second.error is not None:
        return no_canary(f"the repeated test prompt failed: {second.error.sentence}")
    calls = [_call(first, 0), _repeated(second, block_size)]
    reporting = _reporting(*calls)
    exact, salting = Fact[bool](value=None, how="cached tokens are not reported, or not believable"), None
    if refused is not None:
        salting = Fact[bool](value=False, how=f"refused: {refused}")
    if reporting.value:
        # One length is no proof: 96 is the answer for a prompt of 100 tokens with blocks of 16 and of 24.
        longer = request.model_copy(update={"messages": _messages([*words, *words[: len(words) // 8 + 1]])})
        warming = client.chat(longer)
        again = client.chat(longer)
        calls += [_call(warming, None), _repeated(again, block_size)]
        exact = _exactness([calls[1], calls[3]], block_size)
        if salting is None:
            other = client.chat(request.model_copy(update={"cache_salt": secrets.token_hex(16)}))
            calls.append(_call(other, 0))
            salting = _salting(other)
    return Canary(
        tuple(calls),
        salting or Fact(value=None, how="accepted, but nothing reports whether it separates"),
        reporting,
        exact,
        _ids_fact(second, refused),
        Fact(
            value=second.metrics is not None,
            how=f"the stream {'held' if second.metrics is not None else 'held no'} `metrics`",
        ),
    )


def _length(model: ServedModel, block_size: int | None) -> int:
    words = _BLOCKS * (block_size or _TYPICAL_BLOCK)
    return words if model.max_model_len is None else min(words, model.max_model_len // 3)


def make_words(salt: str, count: int) -> list[str]:
    """Words unlike anything the server has seen, from the first one on: cold even without a salt."""
    draw = random.Random(salt)  # noqa: S311 (text, not a secret)
    return [salt, *(draw.choice(_WORDS) for _ in range(count))]


def _messages(words: list[str]) -> tuple[dict[str, JsonValue], ...]:
    return ({"role": "user", "content": " ".join(words)},)


def _request(model: ServedModel, words: list[str], salt: str) -> ChatRequest:
    return ChatRequest(model=model.id, messages=_messages(words), max_tokens=1, cache_salt=salt)


def _call(exchange: Exchange, expected: int | None) -> CanaryCall:
    usage = exchange.usage
    return CanaryCall(
        prompt_tokens=None if usage is None else usage.prompt_tokens,
        cached_tokens=None if usage is None else usage.cached_tokens,
        expected_cached_tokens=expected,
    )


def _repeated(exchange: Exchange, block_size: int | None) -> CanaryCall:
    prompt = None if exchange.usage is None else exchange.usage.prompt_tokens
    # vLLM always computes the last token anew: it gives the first output its logits.
    expected = None if prompt is None or block_size is None else block_size * ((prompt - 1) // block_size)
    return _call(exchange, expected)


def _reporting(first: CanaryCall, second: CanaryCall) -> Fact[bool]:
    if second.cached_tokens is None:
        return Fact(value=False, how="the usage of a repeated prompt held no cached_tokens")
    if second.cached_tokens == 0:
        return Fact(
            value=False, how="a repeated prompt was reported with 0 cached tokens: caching may be off"
        )
    if first.prompt_tokens is not None and (first.cached_tokens or 0) > first.prompt_tokens // 2:
        return Fact(
            value=False,
            how=f"{first.cached_tokens} of {first.prompt_tokens} tokens of a prompt never sent before were "
            "reported as cached: the count cannot be believed",
        )
    return Fact(value=True, how=f"a repeated prompt was reported with {second.cached_tokens} cached tokens")


def _exactness(repeated: list[CanaryCall], block_size: int | None) -> Fact[bool]:
    compared = []
    for call in repeated:
        expected, prompt = call.expected_cached_tokens, call.prompt_tokens
        if expected is None or prompt is None or block_size is None or call.cached_tokens is None:
            return Fact(value=None, how="the block size, a prompt's length or a cached count is unknown")
        if expected < 3 * block_size:
            return Fact(value=None, how=f"{prompt} tokens hold fewer than 3 reusable blocks of {block_size}")
        compared.append(f"{call.cached_tokens} of {prompt} tokens cached, {expected} expected")
    exact = all(call.cached_tokens == call.expected_cached_tokens for call in repeated)
    return Fact(value=exact, how=f"{'; '.join(compared)} with block size {block_size}")


def _salting(third: Exchange) -> Fact[bool]:
    if third.error is not None:
        return Fact(value=None, how=f"the prompt under another salt failed: {third.error.sentence}")
    cached = third.usage.cached_tokens if third.usage is not None else None
    how = (
        f"the same prompt under another salt: {cached if cached is not None else 'no'} cached tokens reported"
    )
    return Fact(value=not cached, how=how)


def _ids_fact(second: Exchange, refused: str | None) -> Fact[bool]:
    if refused is not None:
        return Fact(value=False, how=f"refused: {refused}")
    both = second.prompt_token_ids is not None and second.output_token_ids is not None
    return Fact(value=both, how=f"return_token_ids gave {'prompt and output ids' if both else 'no full ids'}")
