"""What is sent and when: prompts with a controlled shared beginning, and arrival times. Pure functions of a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from serving.client import ChatRequest, CompletionRequest, Exchange, Request, Surface
from serving.client.requests import JsonObject

FIRST_ID: Final = 1000
"""Token ids below this are single bytes and controls in most vocabularies."""
WORDS: Final = (
    *("time", "year", "way", "day", "man", "thing", "world", "life", "hand", "part", "child", "eye", "place"),
    *(
        "work",
        "week",
        "case",
        "point",
        "company",
        "number",
        "group",
        "problem",
        "fact",
        "water",
        "room",
        "mother",
    ),
    *(
        "area",
        "money",
        "story",
        "month",
        "lot",
        "right",
        "study",
        "book",
        "word",
        "business",
        "issue",
        "side",
    ),
    *(
        "kind",
        "head",
        "house",
        "service",
        "friend",
        "father",
        "power",
        "hour",
        "game",
        "line",
        "end",
        "member",
    ),
)
"""One token each in most vocabularies, with the space before it."""


class Shape(BaseModel):
    """The lengths of one cell of the grid, and how much of each prompt was sent before."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt_tokens: int = Field(ge=2)
    output_tokens: int = Field(ge=1)
    hit_percent: int = Field(default=0, ge=0, le=100)
    """Of the prompt: a shared beginning that an earlier request has left in the cache."""
    turns: int = Field(default=1, ge=1)
    """Above 1: conversations; every further turn feeds the model's real answer back."""
    follow_up_tokens: int = Field(default=32, ge=1)
    """What the user adds in every further turn."""

    @property
    def shared_tokens(self) -> int:
        """Length of the shared beginning."""
        return self.prompt_tokens * self.hit_percent // 100


@dataclass(frozen=True)
class Conversation:
    """What a user says, turn by turn: token ids, or words for the chat surface."""

    pieces: tuple[tuple[int, ...], ...]
    """Indices into the vocabulary in use."""


@dataclass(frozen=True)
class Asking:
    """How requests are made for one server; words stand for token ids where it does not take those."""

    model: str
    surface: Surface
    output_tokens: int
    salt: str | None
    """None: the server has no cache salts, and only new words keep trials apart."""
    is_vllm: bool


@dataclass(frozen=True)
class History:
    """A conversation so far, as the next request has to repeat it."""

    token_ids: tuple[int, ...] = ()
    messages: tuple[JsonObject, ...] = ()
    computed: int = 0
    """Tokens of it that the server has read or written in this conversation."""


def conversations(shape: Shape, count: int, vocabulary: int, seed: Sequence[int]) -> tuple[Conversation, ...]:
    """`count` conversations whose first prompts share exactly `shape.shared_tokens`, and nothing by intention after.

    `vocabulary` is the number of ids (or words) to draw from.
    """
    rng = np.random.default_rng(seed)
    shared = _draw(rng, shape.shared_tokens, vocabulary)
    made = []
    for _ in range(count):
        first = shared + _draw(rng, shape.prompt_tokens - shape.shared_tokens, vocabulary)
        rest = (_draw(rng, shape.follow_up_tokens, vocabulary) for _ in range(shape.turns - 1))
        made.append(Conversation((first, *rest)))
    return tuple(made)


def poisson_arrivals(rate_per_s: float, count: int, seed: Sequence[int]) -> tuple[float, ...]:
    """Seconds after the start at which `count` requests are due: gaps are exponential with mean 1 / rate."""
    gaps = np.random.default_rng(seed).exponential(1 / rate_per_s, size=count)
    return tuple(float(at) for at in np.cumsum(gaps))


def reusable(shape: Shape, history: History) -> int:
    """Tokens of the next prompt that an earlier request has computed, by construction."""
    return history.computed or shape.shared_tokens


def check_reuse(reusable_tokens: int, cached_tokens: int, block_size: int) -> bool:
    """Whether the reported reuse is what was asked for, as exactly as a server with whole blocks can be.

    It reuses whole blocks of what earlier requests computed, and always computes the last token itself, so with R
    reusable tokens it reports at least R − block size and at most R; never more. At 100 % of a prompt of whole
    blocks exactly the last block is missing. Source: vLLM, `KVCacheManager.get_computed_blocks`.
    """
    return 0 <= reusable_tokens - cached_tokens <= block_size


def next_request(asking: Asking, history: History, piece: Sequence[int]) -> tuple[Request, History]:
    """The request of the next turn and the history with the user's part in it."""
    extra: JsonObject = {"ignore_eos": True} if asking.is_vllm else {}
    if asking.surface is Surface.TOKEN_IN:
        ids = history.token_ids + tuple(FIRST_ID + number for number in piece)
        grown = History(token_ids=ids, computed=history.computed)
        return CompletionRequest(
            model=asking.model,
            prompt=ids,
            max_tokens=asking.output_tokens,
            cache_salt=asking.salt,
            return_token_ids=asking.is_vllm,
            extra=extra,
        ), grown
    words = " ".join(WORDS[number % len(WORDS)] for number in piece)
    messages: tuple[JsonObject, ...] = (*history.messages, {"role": "user", "content": words})
    return ChatRequest(
        model=asking.model,
        messages=messages,
        max_tokens=asking.output_tokens,
        cache_salt=asking.salt,
        return_token_ids=asking.is_vllm,
        extra=extra,
    ), History(messages=messages, computed=history.computed)


def fed_back(history: History, exchange: Exchange) -> History:
    """The history with the model's own answer at its end."""
    if history.messages:
        answer: JsonObject = {"role": "assistant", "content": exchange.text}
        return History(messages=(*history.messages, answer), computed=history.computed)
    ids = history.token_ids + (exchange.output_token_ids or ())
    return History(token_ids=ids, computed=len(ids))


def _draw(rng: np.random.Generator, count: int, vocabulary: int) -> tuple[int, ...]:
    return tuple(int(number) for number in rng.integers(0, vocabulary, size=count))
