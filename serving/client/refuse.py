"""Requests that would kill an engine or spoil a measurement, refused before they are sent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, JsonValue

from serving.client.requests import JsonObject, Request
from serving.errors import UsageError
from serving.text import find_surrogate

_SALT_LIMIT = 128
_SALT_FORBIDDEN = re.compile(r"[@/\\\0]")


class Refusal(StrEnum):
    """Why a request is not sent."""

    SEED_KILLS_CPU_ENGINE = "seed_kills_cpu_engine"
    PROMPT_LOGPROBS = "prompt_logprobs"
    CACHE_SALT = "cache_salt"
    UNPAIRED_SURROGATE = "unpaired_surrogate"
    SEVERAL_CHOICES = "several_choices"
    EMPTY_PROMPT = "empty_prompt"


class RefusedRequestError(UsageError):
    """A request that was not sent; `reason` says why, for a program."""

    def __init__(self, reason: Refusal, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class CpuEngineLimits(BaseModel):
    """What the client must know of a CPU engine so as not to kill it.

    vLLM's CPU worker dies ("CPU Generator does not use offset") when a seeded, sampled request's uncached
    prompt is longer than one scheduling step takes. Give this for a CPU engine only.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_num_batched_tokens: int
    max_model_len: int | None = None
    """The longest a prompt can be, where its length is not known; None: no bound."""


def check(request: Request, body: JsonObject, cpu_limits: CpuEngineLimits | None = None) -> None:
    """Pass, or raise `RefusedRequestError` for the first thing wrong with the request.

    A cached prefix may make a long seeded prompt harmless; the client cannot know that, so it refuses.
    """
    if cpu_limits is not None:
        _check_seed(request, body, cpu_limits)
    if request.measured and body.get("prompt_logprobs") is not None:
        raise RefusedRequestError(
            Refusal.PROMPT_LOGPROBS,
            "Expected a measured request without prompt_logprobs, which switch cache reads off for it: "
            "drop them, or send the request with measured=False.",
        )
    _check_salt(body.get("cache_salt"))
    choices = body.get("n", 1)
    if choices not in (1, None):
        raise RefusedRequestError(
            Refusal.SEVERAL_CHOICES,
            f"Expected n=1, got n={choices!r}: an exchange records one choice; send the request n times.",
        )
    if request.prompt_tokens == 0:
        raise RefusedRequestError(
            Refusal.EMPTY_PROMPT, "Expected a prompt of at least 1 token, got 0: give the token ids."
        )
    for path, text in _strings(body, ""):
        if (found := find_surrogate(text)) is not None:
            raise RefusedRequestError(
                Refusal.UNPAIRED_SURROGATE,
                f"Expected text that UTF-8 can carry, got the unpaired surrogate {found.name} at "
                f"character {found.start} of {path}: repair it where the text comes from.",
            )


def _check_seed(request: Request, body: JsonObject, limits: CpuEngineLimits) -> None:
    if body.get("seed") is None or body.get("temperature") == 0:
        return
    longest = request.prompt_tokens if request.prompt_tokens is not None else limits.max_model_len
    if longest is not None and longest <= limits.max_num_batched_tokens:
        return
    length = "of unknown length" if longest is None else f"of up to {longest} tokens"
    raise RefusedRequestError(
        Refusal.SEED_KILLS_CPU_ENGINE,
        f"Expected a seeded, sampled prompt of at most {limits.max_num_batched_tokens} tokens "
        f"(max_num_batched_tokens), got one {length}, which kills a CPU engine: set temperature to 0, "
        "drop the seed, or start the engine with a higher limit.",
    )


def _check_salt(salt: JsonValue) -> None:
    if salt is None:
        return
    if isinstance(salt, str) and 0 < len(salt) <= _SALT_LIMIT and not _SALT_FORBIDDEN.search(salt):
        return
    shown = repr(salt) if not isinstance(salt, str) or len(salt) <= _SALT_LIMIT else f"{len(salt)} characters"
    raise RefusedRequestError(
        Refusal.CACHE_SALT,
        f"Expected a cache_salt of 1 to {_SALT_LIMIT} characters without @ / \\ or NUL, got {shown}: "
        "use letters, digits and dashes.",
    )


def _strings(value: JsonValue, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"a key of {path or 'the body'}", key
            yield from _strings(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            # Millions of token ids pass here; only containers and strings are worth a generator.
            if not isinstance(item, int | float):
                yield from _strings(item, f"{path}[{index}]")
