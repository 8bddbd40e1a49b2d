"""The load generator: closed loop or given arrival times, over the recording client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass

from experiments.latency.workload import (
    Asking,
    Conversation,
    History,
    Shape,
    fed_back,
    next_request,
    reusable,
)
from serving.client import AsyncClient, Exchange
from serving.errors import LabError


@dataclass(frozen=True)
class Sent:
    """One call of a load, and what it was meant to be."""

    exchange: Exchange
    conversation: int
    turn: int
    reusable_tokens: int
    """What an earlier request had computed of the prompt."""
    late_s: float
    """Sent this much after it was due; 0 in a closed loop, where nothing is due."""


@dataclass(frozen=True)
class Loaded:
    """All calls of one load, in the order of sending, and when the load was full."""

    calls: tuple[Sent, ...]
    full_from_ns: int
    full_to_ns: int
    """Closed loop: when a worker first found nothing left to send. Arrivals: the last of them."""
    joules: float | None = None
    """Of the whole machine's packages or cards, from the first call to the last answer; None where unknown."""


async def closed_loop(
    client: AsyncClient, asking: Asking, shape: Shape, todo: Sequence[Conversation], concurrency: int
) -> Loaded:
    """`concurrency` workers, each sending its next call when its last one has ended.

    A call that fails ends the load; its error is in the last exchange.
    """
    calls: list[Sent] = []
    queue = iter(enumerate(todo))
    drained: list[int] = []
    begin = time.perf_counter_ns()

    async def work() -> None:
        for number, conversation in queue:
            await _talk(client, asking, shape, conversation, number, calls, None)
        drained.append(time.perf_counter_ns())

    await _together([work() for _ in range(min(concurrency, len(todo)))])
    return _loaded(calls, begin, min(drained, default=time.perf_counter_ns()))


async def open_loop(
    client: AsyncClient,
    asking: Asking,
    shape: Shape,
    todo: Sequence[Conversation],
    due_s: Sequence[float],
) -> Loaded:
    """Start every conversation when it is due, however many still run: a slow server meets a growing queue."""
    calls: list[Sent] = []
    begin = time.perf_counter_ns()

    async def start(number: int, conversation: Conversation, due_ns: int) -> None:
        await asyncio.sleep(max(0, due_ns - time.perf_counter_ns()) / 1e9)
        await _talk(client, asking, shape, conversation, number, calls, due_ns)

    due = [begin + round(at * 1e9) for at in due_s]
    pairs = zip(todo, due, strict=True)
    await _together([start(number, one, at) for number, (one, at) in enumerate(pairs)])
    return _loaded(calls, due[0], due[-1])


async def _talk(
    client: AsyncClient,
    asking: Asking,
    shape: Shape,
    conversation: Conversation,
    number: int,
    calls: list[Sent],
    due_ns: int | None,
) -> None:
    history = History()
    for turn, piece in enumerate(conversation.pieces):
        ready = reusable(shape, history)
        request, history = next_request(asking, history, piece)
        stream = client.stream(request)
        async with stream:
            async for _ in stream:
                pass
        exchange = stream.exchange
        late = 0.0 if due_ns is None or turn else max(0, exchange.timings.sent_ns - due_ns) / 1e9
        calls.append(Sent(exchange, number, turn, ready, late))
        if exchange.error is not None:
            raise _CallFailedError
        history = fed_back(history, exchange)


async def _together(work: Sequence[Coroutine[None, None, None]]) -> None:
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    except _CallFailedError:
        return  # what failed is the last of the calls; the others are of no more use
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _loaded(calls: Sequence[Sent], begin: int, end: int) -> Loaded:
    if not calls:
        raise LabError("Expected a load of at least one call, got none: give it a conversation.")
    ordered = sorted(calls, key=lambda call: call.exchange.timings.sent_ns)
    return Loaded(tuple(ordered), begin, end)


class _CallFailedError(Exception):
    """One call failed, and the load with it."""
