"""Bounds under concurrency: what the cache can have served when requests overlap in time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from serving.errors import UsageError
from serving.prefix.history import common_prefix
from serving.prefix.prediction import PrefixRequest, hit_tokens, id_array


class TimedRequest(BaseModel):
    """A request and when the client saw it; all times in one unit on one clock."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    request: PrefixRequest
    sent: float
    """Before the first byte of the request left."""
    first_token: float
    """When the first token of any kind had come: the engine had looked the prompt up and computed it."""
    finished: float
    """When the last token had come."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.sent <= self.first_token <= self.finished:
            raise ValueError(
                "sent ≤ first_token ≤ finished must hold; "
                f"got {self.sent}, {self.first_token}, {self.finished}"
            )
        return self


class CachedBounds(BaseModel):
    """The least and the most prompt tokens that the cache can have served."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt_tokens: int
    low: int
    high: int

    @property
    def exact(self) -> bool:
        """Whether the bounds leave one answer."""
        return self.low == self.high


def bound_cached(
    requests: Sequence[TimedRequest], *, block_size: int, num_blocks: int | None = None
) -> list[CachedBounds]:
    """Bound the cached tokens of requests that may overlap, from the client's clock alone.

    The engine looks a prompt up at some moment between `sent` and `first_token`.

    High: every other request sent before that moment can have passed may have left all it ever stores, and
    nothing was evicted. Low: only what was surely there and still is. A request that had finished by `sent`
    left its stored ids, one that had its first token by then left its prompt. In a finite pool these survive
    if all requests that ran since – from the moment that request was sent – need no more blocks together than
    the pool has: a block of it can be taken only after every other block was in use or freed behind it. Where
    that cannot be shown, the request counts for nothing.

    A sequence without preemption is assumed for high. Time grows with the square of the number of requests.
    """
    if block_size < 1 or (num_blocks is not None and num_blocks < 2):
        raise UsageError(
            f"A block needs at least 1 token and a pool 2 blocks; got block_size={block_size}, "
            f"num_blocks={num_blocks}. Read both from the server."
        )
    arrays = [id_array((*r.request.prompt_ids, *r.request.output_ids)) for r in requests]
    pressure = _Pressure(requests, block_size)
    bounds = []
    for i, later in enumerate(requests):
        prompt_tokens = len(later.request.prompt_ids)
        low = high = 0
        for j, earlier in enumerate(requests):
            if j == i or earlier.sent > later.first_token:
                continue
            if earlier.request.cache_salt != later.request.cache_salt:
                continue
            stored = earlier.request.stored_tokens
            shared = common_prefix(arrays[j][:stored], arrays[i][:prompt_tokens])
            high = max(high, hit_tokens(shared, prompt_tokens, block_size))
            surely = min(shared, _surely_stored(earlier, by=later.sent))
            if num_blocks is None or pressure.between(j, i) < num_blocks:
                low = max(low, hit_tokens(surely, prompt_tokens, block_size))
        bounds.append(CachedBounds(prompt_tokens=prompt_tokens, low=low, high=high))
    return bounds


def _surely_stored(request: TimedRequest, *, by: float) -> int:
    if request.finished <= by:
        return request.request.stored_tokens
    return len(request.request.prompt_ids) if request.first_token <= by else 0


class _Pressure:
    """How many blocks all requests of a stretch of time need together, by prefix sums over both ends."""

    def __init__(self, requests: Sequence[TimedRequest], block_size: int) -> None:
        self._requests = requests
        # Every output token has a slot and so has an overrun: one more than stored, never fewer than held.
        self._blocks = [
            -(-(r.request.stored_tokens + max(r.request.overrun_tokens, 1)) // block_size) for r in requests
        ]
        by_sent = sorted(range(len(requests)), key=lambda i: requests[i].sent)
        by_finished = sorted(range(len(requests)), key=lambda i: requests[i].finished)
        self._sent = [requests[i].sent for i in by_sent]
        self._finished = [requests[i].finished for i in by_finished]
        self._sent_blocks = [0, *accumulate(self._blocks[i] for i in by_sent)]
        self._finished_blocks = [0, *accumulate(self._blocks[i] for i in by_finished)]

    def between(self, earlier: int, later: int) -> int:
        """Count the blocks of all requests but `later` that ran at any time from earlier's sending on."""
        begun = self._sent_blocks[bisect_right(self._sent, self._requests[later].first_token)]
        over = self._finished_blocks[bisect_left(self._finished, self._requests[earlier].sent)]
        return begun - over - self._blocks[later]
