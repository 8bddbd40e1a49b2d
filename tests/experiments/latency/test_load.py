from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import cast

import pytest

from experiments.latency.load import Loaded, closed_loop, open_loop
from experiments.latency.measures import measures_of
from experiments.latency.workload import Asking, Shape, conversations
from serving.client import AsyncClient, Exchange, Surface
from tests.support.made_load import exchange_of, loaded_of

SHAPE = Shape(prompt_tokens=4, output_tokens=3)
ASKING = Asking(model="m", surface=Surface.TOKEN_IN, output_tokens=3, salt="s", is_vllm=True)
TODO = conversations(SHAPE, 6, 100, [0])


class Holding:
    """A client whose every answer waits until `waits_for` requests have been sent."""

    def __init__(self, waits_for: int) -> None:
        self._waits_for = waits_for
        self._enough = asyncio.Event()
        self.sent = 0

    def stream(self, _request: object) -> Holding.Stream:
        self.sent += 1
        if self.sent >= self._waits_for:
            self._enough.set()
        return Holding.Stream(self._enough, exchange_of(sent_s=self.sent, arrivals_s=(1, 2, 3)))

    class Stream:
        def __init__(self, enough: asyncio.Event, exchange: Exchange) -> None:
            self._enough = enough
            self.exchange = exchange

        async def __aenter__(self) -> Holding.Stream:
            return self

        async def __aexit__(
            self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
        ) -> None:
            return

        async def __aiter__(self) -> AsyncIterator[None]:
            await self._enough.wait()
            yield None


async def within(client: Holding, *, closed: bool) -> Loaded:
    async with asyncio.timeout(20):
        asked = cast("AsyncClient", client)
        if closed:
            return await closed_loop(asked, ASKING, SHAPE, TODO, 2)
        return await open_loop(asked, ASKING, SHAPE, TODO, [0.001 * place for place in range(len(TODO))])


def test_arrivals_do_not_wait_for_answers() -> None:
    assert len(asyncio.run(within(Holding(len(TODO)), closed=False)).calls) == len(TODO)


def test_a_closed_loop_does_wait() -> None:
    async def stuck() -> int:
        client = Holding(3)
        task = asyncio.ensure_future(within(client, closed=True))
        for _ in range(50):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return client.sent

    assert asyncio.run(stuck()) == 2


def test_calls_that_settling_leaves_out_still_count_while_the_load_is_full() -> None:
    """Two clients; the first two calls are slow, are cut off, and run on beside the first that is kept."""
    slow = [exchange_of(sent_s=place / 100, arrivals_s=tuple(range(1, 11))) for place in range(2)]
    first = [exchange_of(sent_s=1 + place / 100, arrivals_s=(0.5, 1)) for place in range(24)]
    loaded = loaded_of([*slow, *first], full_to_s=3)
    found = measures_of(loaded, SHAPE, None)
    assert (found["settling_requests"], found["requests"]) == (2, 24)
    seconds = found["full_seconds"]
    tokens = 2 * 2 + 24 * 2  # two of each slow call arrive from 1 s to 3 s
    assert seconds == pytest.approx(2, rel=0.01)
    assert found["full_output_tokens_per_s"] == pytest.approx(tokens / 2, rel=0.05)


def talks(*, slow: int) -> Loaded:
    """Eight clients and two rounds of conversations with three turns: a first turn takes twice a later one's time.

    All vary by a tenth, and the first turns of the first `slow` conversations take five times as long as the others'.
    """
    calls = []
    for place in range(48):
        noise = 1 + 0.1 * ((3 * place + 2) % 5 - 2) / 2
        takes = (1.0 if place // 8 % 3 else 2.0) * noise * (5 if place < slow else 1)
        calls.append(exchange_of(sent_s=place, arrivals_s=(takes / 2, takes)))
    return loaded_of(calls, full_to_s=60, clients=8, turns=3)


def test_first_turns_that_are_cold_every_time_are_no_warm_up() -> None:
    found = measures_of(talks(slow=0), SHAPE, None)
    assert (found["requests"], found["settling_requests"], found["steady"]) == (48, 0, True)
    assert found["ttft_mean_s"] == pytest.approx((1.0 + 0.5 + 0.5) / 3, rel=0.01)


def test_a_warm_up_takes_its_conversations_with_all_their_turns() -> None:
    found = measures_of(talks(slow=3), SHAPE, None)
    assert (found["requests"], found["settling_requests"], found["steady"]) == (39, 9, True)
    assert found["ttft_mean_s"] == pytest.approx((1.0 + 0.5 + 0.5) / 3, rel=0.01)


def test_an_answer_without_a_token_leaves_the_others_at_their_places() -> None:
    none = exchange_of(arrivals_s=(1,))
    silent = none.model_copy(
        update={
            "timings": none.timings.model_copy(
                update={"first_token_ns": None, "last_token_ns": None, "arrivals": ()}
            )
        }
    )
    slow = exchange_of(sent_s=0.5, arrivals_s=(9,))
    loaded = loaded_of(
        [silent, slow, *(exchange_of(sent_s=1 + place, arrivals_s=(1, 2)) for place in range(24))],
        full_to_s=30,
    )
    found = measures_of(loaded, SHAPE, None)
    assert (found["requests"], found["steady"]) == (26, None)
