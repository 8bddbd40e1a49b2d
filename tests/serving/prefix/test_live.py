"""Predictions held against a really served model: every request, before it is sent."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from serving.chat import ChatRenderer
from serving.client import AsyncClient, ChatRequest, Client, CompletionRequest, Exchange
from serving.engine import KVEventsEndpoint
from serving.engine.live_mirror import LiveMirror
from serving.engine.subscription import KVEventSubscription
from serving.launch import LaunchOptions, launch, plan_launch
from serving.prefix import (
    Cause,
    Predictor,
    PrefixRequest,
    TimedRequest,
    bound_cached,
    predict,
    seed_from,
)
from serving.probe import read_server_facts
from serving.probe.prove import Claim, Verdict, prove_server
from tests.conftest import LIVE_MODEL, LiveServer
from tests.support.traffic import Asked, Traffic

pytestmark = pytest.mark.live


@dataclass(frozen=True)
class Served:
    """A server that nobody else uses, so that its whole pool can be predicted."""

    base_url: str
    model: str
    folder: Path
    block_size: int
    num_blocks: int
    kv_events: KVEventsEndpoint


@contextmanager
def served(block_size: int, blocks: int, log: Path) -> Iterator[Served]:
    bytes_per_token = 2 * 4 * 2 * 64 * 4  # keys and values, 4 layers, 2 heads of 64 numbers, 4 bytes each
    options = LaunchOptions(
        model=LIVE_MODEL,
        port=0,
        block_size=block_size,
        max_model_len=1024,
        kv_cache_bytes=blocks * block_size * bytes_per_token,
        kv_events=True,
    )
    plan = plan_launch(options)
    assert plan.config.kv_events is not None
    with launch(plan, log_path=log) as engine:
        facts = read_server_facts(engine.base_url, plan.folder.name)
        assert facts.block_size == block_size
        assert facts.num_blocks is not None
        yield Served(
            engine.base_url,
            plan.folder.name,
            plan.folder.path,
            block_size,
            facts.num_blocks,
            plan.config.kv_events,
        )


@pytest.fixture(scope="module", params=[(32, 80), (128, 24)], ids=["block 32", "block 128"])
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    block_size, blocks = request.param
    with served(block_size, blocks, tmp_path_factory.mktemp("engine") / "engine.log") as server:
        yield server


def send(client: Client, asked: Asked) -> Exchange:
    request = asked.request
    exchange = client.chat(request) if isinstance(request, ChatRequest) else client.complete(request)
    exchange.raise_for_error()
    assert exchange.prompt_token_ids == asked.ids
    return exchange


def reported(exchange: Exchange) -> int:
    assert exchange.usage is not None and exchange.usage.cached_tokens is not None
    return exchange.usage.cached_tokens


def mirror_agrees(mirror: LiveMirror, predictor: Predictor) -> bool:
    """Whether the mirror comes to hold the predicted pool; events trail the answer by milliseconds."""
    deadline = time.monotonic() + 5
    while not mirror.mirror.difference(predictor.contents()).agrees:
        if time.monotonic() > deadline:
            return False
        mirror.advance(0.02)
    return True


def pool_edges(server: Served, salt: str) -> Iterator[Asked]:
    """Requests whose hits differ between this pool, one block less and one block more.

    Prompts of whole blocks and one token fill the pool to its last block; with one block less the first of
    them has lost its tail. One more block then takes the tail of the next, and would not with one more.
    """
    size, usable = server.block_size, server.num_blocks - 1
    lengths = [5] * ((usable - 1) // 5)
    lengths += [rest] if (rest := usable - 1 - sum(lengths)) else []

    def prompt(first: int, blocks: int) -> Asked:
        ids = tuple(range(first, first + blocks * size + 1))
        request = CompletionRequest(model=server.model, prompt=ids, max_tokens=1, cache_salt=salt)
        return Asked(request, ids)

    filling = [prompt(2000 * (number + 1), blocks) for number, blocks in enumerate(lengths)]
    yield from filling
    yield filling[0]
    yield prompt(99_000, 1)
    yield filling[1]


@pytest.mark.full
def test_every_prediction_of_a_small_pool_is_what_the_server_reports_and_its_pool_is_ours(
    small: Served,
) -> None:
    """At least 300 requests one after another, chats with tool loops and token ids, with evictions."""
    renderer = ChatRenderer(small.folder, template_kwargs={"enable_thinking": False})
    traffic = Traffic(
        11, renderer, small.model, block_size=small.block_size, longest=500, salts=(None, None, "a", "b")
    )
    predictor = Predictor(small.block_size, small.num_blocks, seed=seed_from(os.environ))
    evicted, wrong, sent, answers = 0, [], [], []
    with Client(small.base_url) as client, KVEventSubscription(small.kv_events) as subscription:
        mirror = LiveMirror(subscription)
        assert mirror.advance(0.1) == [], "this test has to be the first on its server"

        def ask(asked: Asked) -> None:
            nonlocal evicted
            prediction = predictor.predict_next(asked.ids, asked.salt)
            exchange = send(client, asked)
            stored = asked.stored(exchange)
            predictor.record(stored.output_ids)
            evicted += prediction.causes[Cause.EVICTION] > 0
            sent.append(stored)
            answers.append(reported(exchange))
            if prediction.cached_tokens != answers[-1]:
                wrong.append((len(answers), prediction.cached_tokens, answers[-1]))
            if isinstance(asked.request, ChatRequest) or asked.salt != "edges":
                traffic.answered(asked, exchange)
            assert mirror_agrees(mirror, predictor), f"after request {len(answers)}"

        for _ in range(300):
            ask(traffic.next())
        for asked in pool_edges(small, "edges"):
            ask(asked)
    assert wrong == []
    assert evicted >= 30
    assert mirror.mirror.complete
    for num_blocks in (small.num_blocks - 1, small.num_blocks + 1):
        others = predict(sent, block_size=small.block_size, num_blocks=num_blocks)
        assert [o.cached_tokens for o in others] != answers, f"{num_blocks} blocks explain the answers too"


def test_predictions_of_a_shared_server_are_what_it_reports_and_its_mirror_holds_what_we_sent(
    live_server: LiveServer,
) -> None:
    renderer = ChatRenderer(live_server.folder, template_kwargs={"enable_thinking": False})
    salts = tuple(f"shared-{time.time_ns()}-{number}" for number in range(2))
    traffic = Traffic(
        5, renderer, live_server.model, block_size=live_server.block_size, longest=300, salts=salts
    )
    predictor = Predictor(live_server.block_size, live_server.num_blocks, seed=seed_from(os.environ))
    assert live_server.kv_events is not None
    with Client(live_server.base_url) as client, KVEventSubscription(live_server.kv_events) as subscription:
        mirror = LiveMirror(subscription)
        hits = 0
        for number in range(32):
            asked = traffic.next()
            prediction = predictor.predict_next(asked.ids, asked.salt)
            exchange = send(client, asked)
            predictor.record(asked.stored(exchange).output_ids)
            traffic.answered(asked, exchange)
            assert reported(exchange) == prediction.cached_tokens, number
            hits += prediction.cached_tokens > 0
        assert hits >= 8
        deadline = time.monotonic() + 5
        while mirror.mirror.difference(predictor.contents()).only_predicted:
            assert time.monotonic() < deadline, "blocks that we had stored never showed in the events"
            mirror.advance(0.05)


async def run_at_once(
    base_url: str, traffic: Traffic, *, total: int, at_once: int
) -> list[tuple[TimedRequest, int]]:
    """Keep `at_once` requests under way until `total` are answered; each with its times and its hit."""
    done: list[tuple[TimedRequest, int]] = []
    left = total

    async def worker(client: AsyncClient) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            asked = traffic.next()
            before = time.perf_counter_ns()
            request = asked.request
            exchange = await (
                client.chat(request) if isinstance(request, ChatRequest) else client.complete(request)
            )
            exchange.raise_for_error()
            traffic.answered(asked, exchange)
            timings = exchange.timings
            assert timings.first_token_ns is not None
            timed = TimedRequest(
                request=asked.stored(exchange),
                sent=before,
                first_token=timings.sent_ns + timings.first_token_ns,
                finished=timings.sent_ns + timings.done_ns,
            )
            done.append((timed, reported(exchange)))

    async with AsyncClient(base_url) as client:
        await asyncio.gather(*(worker(client) for _ in range(at_once)))
    return done


def check_bounds(done: list[tuple[TimedRequest, int]], block_size: int, num_blocks: int) -> tuple[int, int]:
    """Every reported number lies within its bounds; how many bounds are open, and how many promise a hit."""
    bounds = bound_cached([timed for timed, _ in done], block_size=block_size, num_blocks=num_blocks)
    for bound, (_, cached) in zip(bounds, done, strict=True):
        assert bound.low <= cached <= bound.high
        assert cached % block_size == 0
    return sum(not bound.exact for bound in bounds), sum(bound.low > 0 for bound in bounds)


def test_bounds_hold_with_several_requests_in_flight(live_server: LiveServer) -> None:
    renderer = ChatRenderer(live_server.folder, template_kwargs={"enable_thinking": False})
    salts = (f"flight-{time.time_ns()}",)
    traffic = Traffic(
        6, renderer, live_server.model, block_size=live_server.block_size, longest=300, salts=salts
    )
    done = asyncio.run(run_at_once(live_server.base_url, traffic, total=32, at_once=4))
    _, promised = check_bounds(done, live_server.block_size, live_server.num_blocks)
    assert promised >= 5


def test_bounds_are_open_and_hold_where_one_prompt_is_sent_four_times_at_once(
    live_server: LiveServer,
) -> None:
    ids = tuple(range(7000, 7000 + 12 * live_server.block_size + 1))
    salt = f"burst-{time.time_ns()}"
    request = CompletionRequest(model=live_server.model, prompt=ids, max_tokens=2, cache_salt=salt)

    class Same(Traffic):
        def next(self) -> Asked:
            return Asked(request, ids)

    renderer = ChatRenderer(live_server.folder)
    same = Same(0, renderer, live_server.model, block_size=live_server.block_size, longest=1, salts=(salt,))
    done = asyncio.run(run_at_once(live_server.base_url, same, total=4, at_once=4))
    unknown, _ = check_bounds(done, live_server.block_size, live_server.num_blocks)
    assert unknown >= 1


@pytest.mark.full
@pytest.mark.parametrize("at_once", [2, 3, 5, 6, 7, 8])
def test_bounds_hold_for_every_request_with_two_to_eight_in_flight(
    live_server: LiveServer, at_once: int
) -> None:
    renderer = ChatRenderer(live_server.folder, template_kwargs={"enable_thinking": False})
    salts = (f"flight-{at_once}-{time.time_ns()}",)
    traffic = Traffic(
        at_once, renderer, live_server.model, block_size=live_server.block_size, longest=500, salts=salts
    )
    done = asyncio.run(run_at_once(live_server.base_url, traffic, total=60, at_once=at_once))
    check_bounds(done, live_server.block_size, live_server.num_blocks)


@pytest.mark.full
@pytest.mark.parametrize("at_once", [2, 3, 4])
def test_bounds_hold_for_every_request_in_flight_under_eviction(small: Served, at_once: int) -> None:
    longest = (small.num_blocks - 1) * small.block_size // at_once - 2 * small.block_size
    renderer = ChatRenderer(small.folder, template_kwargs={"enable_thinking": False})
    traffic = Traffic(
        20 + at_once,
        renderer,
        small.model,
        block_size=small.block_size,
        longest=min(longest, 500),
        salts=(f"flight-{at_once}",),
    )
    done = asyncio.run(run_at_once(small.base_url, traffic, total=60, at_once=at_once))
    check_bounds(done, small.block_size, small.num_blocks)


@pytest.mark.full
def test_a_small_server_is_proven_in_every_claim(small: Served) -> None:
    proof = prove_server(small.base_url, reset=True, budget_s=600.0)
    assert {finding.claim: finding.verdict for finding in proof.findings} == dict.fromkeys(
        Claim, Verdict.PROVEN
    ), proof.findings
    assert proof.lies == ()


def test_a_prompt_below_one_block_cannot_hit_and_is_said_to_be_unable(live_server: LiveServer) -> None:
    ids = tuple(range(3000, 3000 + live_server.block_size))
    salt = f"short-{time.time_ns()}"
    request = CompletionRequest(model=live_server.model, prompt=ids, max_tokens=1, cache_salt=salt)
    [_, again] = predict(
        [PrefixRequest(prompt_ids=ids, output_ids=(1,))] * 2, block_size=live_server.block_size
    )
    with Client(live_server.base_url) as client:
        answers = [reported(client.complete(request).raise_for_error()) for _ in range(2)]
    assert again.ceiling_tokens == 0
    assert answers == [0, 0] == [again.cached_tokens] * 2
