"""Predictions, keys, evictions, bounds and events, each held against vLLM's own cache manager."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.prefix import (
    BlockHasher,
    Cause,
    HashAlgorithm,
    Predictor,
    PrefixRequest,
    predict,
    seed_from,
)
from serving.prefix.bounds import TimedRequest, bound_cached
from serving.prefix.mirror import AllBlocksCleared, BlocksRemoved, BlocksStored, KVEvent, PoolMirror

MakeOracle = Callable[..., Any]


class Sequence(NamedTuple):
    """Requests in order, and a pool that has room for each of them alone."""

    block_size: int
    num_blocks: int
    requests: list[PrefixRequest]
    algorithm: HashAlgorithm = HashAlgorithm.SHA256

    def blocks(self, request: PrefixRequest) -> int:
        return -(-(request.stored_tokens + request.overrun_tokens) // self.block_size)

    @property
    def endless(self) -> int:
        return 2 + sum(map(self.blocks, self.requests))


_STEP = st.tuples(
    st.integers(0, 7),  # which earlier request to start from
    st.integers(0, 40),  # how many of its ids to keep
    st.integers(0, 20),  # how many ids to add
    st.integers(0, 2),  # which id to add: few, so that requests meet by accident as well
    st.integers(0, 20),  # how many ids to generate
    st.sampled_from([None, None, None, "a", "b"]),
    st.sampled_from([0, 0, 0, 1, 9]),
)


@st.composite
def sequences(draw: st.DrawFn) -> Sequence:
    block_size = draw(st.sampled_from([1, 2, 3, 4, 8, 16]))
    slack = draw(st.integers(0, 12))
    requests: list[PrefixRequest] = []
    for base, keep, fresh, new_id, generated, salt, overrun in draw(st.lists(_STEP, min_size=2, max_size=8)):
        earlier = requests[base % len(requests)] if requests else PrefixRequest(prompt_ids=(0,))
        kept = (earlier.prompt_ids + earlier.output_ids)[:keep]
        requests.append(
            PrefixRequest(
                prompt_ids=(kept + (new_id,) * fresh) or (new_id,),
                output_ids=(new_id + 1,) * generated,
                cache_salt=salt,
                overrun_tokens=overrun,
            )
        )
    largest = max(-(-(r.stored_tokens + r.overrun_tokens) // block_size) for r in requests)
    return Sequence(block_size, largest + 1 + slack, requests, draw(st.sampled_from(HashAlgorithm)))


def check_sequence(oracle: MakeOracle, sequence: Sequence) -> None:
    """Hits, the bytes of every key, and the free queue with its keys, after each request."""
    engine = oracle(sequence.block_size, sequence.num_blocks, sequence.algorithm.value)
    hasher = BlockHasher(sequence.block_size, sequence.algorithm)
    predictor = Predictor(sequence.block_size, sequence.num_blocks, algorithm=sequence.algorithm)
    for request in sequence.requests:
        prediction = predictor.predict_next(request.prompt_ids, request.cache_salt)
        predictor.record(request.output_ids, overrun_tokens=request.overrun_tokens)
        assert prediction.cached_tokens == engine.run(request)
        ids = request.prompt_ids + request.output_ids
        assert list(hasher.keys(ids, cache_salt=request.cache_salt)) == engine.keys
        assert predictor.pool is not None
        assert predictor.pool.eviction_order() == engine.eviction_order()


@settings(max_examples=2000)
@given(sequence=sequences())
def test_cached_tokens_keys_and_the_whole_free_queue_agree(oracle: MakeOracle, sequence: Sequence) -> None:
    check_sequence(oracle, sequence)


@pytest.mark.full
@settings(max_examples=20_000, suppress_health_check=[HealthCheck.too_slow])
@given(sequence=sequences())
def test_cached_tokens_keys_and_the_whole_free_queue_agree_in_20_000_sequences(
    oracle: MakeOracle, sequence: Sequence
) -> None:
    check_sequence(oracle, sequence)


@settings(max_examples=300)
@given(sequence=sequences())
def test_eviction_and_salt_losses_are_what_the_engine_gains_without_them(
    oracle: MakeOracle, sequence: Sequence
) -> None:
    small = oracle(sequence.block_size, sequence.num_blocks)
    endless = oracle(sequence.block_size, sequence.endless)
    unsalted = oracle(sequence.block_size, sequence.endless)
    predictions = predict(sequence.requests, block_size=sequence.block_size, num_blocks=sequence.num_blocks)
    for request, prediction in zip(sequence.requests, predictions, strict=True):
        with_eviction = small.run(request)
        with_salt = endless.run(request)
        without_either = unsalted.run(request.model_copy(update={"cache_salt": None}))
        assert prediction.causes[Cause.EVICTION] == with_salt - with_eviction
        assert prediction.causes[Cause.SALT] == without_either - with_salt


@pytest.mark.parametrize("algorithm", list(HashAlgorithm))
@pytest.mark.parametrize("seed", [None, "0", "1234", "random"])
@pytest.mark.parametrize("salt", [None, "tenant", "sälz-鹽"])
def test_block_keys_are_the_same_bytes(
    oracle: MakeOracle,
    monkeypatch: pytest.MonkeyPatch,
    algorithm: HashAlgorithm,
    seed: str | None,
    salt: str | None,
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    environ = {} if seed is None else {"PYTHONHASHSEED": seed}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    engine = oracle(16, 10, algorithm.value)
    # Ids on both sides of every width that an encoder can switch at.
    ids = tuple(v for edge in (0, 23, 255, 65_535, 151_645, 2**31 - 2) for v in range(edge, edge + 2)) * 20
    keys = BlockHasher(16, algorithm, seed_from(environ)).keys(ids, cache_salt=salt)
    running = engine.start(PrefixRequest(prompt_ids=ids, cache_salt=salt))
    assert len(keys) == len(ids) // 16
    assert list(keys) == running.block_hashes


@settings(max_examples=200)
@given(ids=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=70), cut=st.integers(0, 70))
def test_keys_extended_from_a_prefix_are_those_of_the_whole(
    oracle: MakeOracle, ids: list[int], cut: int
) -> None:
    hasher = BlockHasher(4)
    known = hasher.keys(ids[:cut], cache_salt="s")
    extended = hasher.keys(ids, cache_salt="s", known=known)
    assert (
        list(extended)
        == oracle(4, 2).start(PrefixRequest(prompt_ids=tuple(ids), cache_salt="s")).block_hashes
    )


def test_long_realistic_chats_agree_under_pressure(oracle: MakeOracle) -> None:
    """Forty conversations of growing length share a head and compete for 300 blocks of 16."""
    rng = random.Random(7)
    engine, predictor = oracle(16, 300), Predictor(16, 300)
    head = tuple(rng.randrange(150_000) for _ in range(700))
    chats = [(*head, i) for i in range(40)]
    evictions = 0
    for _turn in range(400):
        chat = rng.randrange(len(chats))
        prompt = chats[chat] + tuple(rng.randrange(150_000) for _ in range(rng.randrange(1, 120)))
        request = PrefixRequest(
            prompt_ids=prompt[:3000],
            output_ids=tuple(rng.randrange(150_000) for _ in range(rng.randrange(1, 90))),
        )
        chats[chat] = request.prompt_ids + request.output_ids
        prediction = predictor.predict_next(request.prompt_ids)
        predictor.record(request.output_ids)
        assert prediction.cached_tokens == engine.run(request)
        evictions += prediction.causes[Cause.EVICTION] > 0
    assert evictions > 20


@settings(max_examples=300)
@given(sequence=sequences())
def test_the_mirror_of_the_events_holds_the_predicted_pool(oracle: MakeOracle, sequence: Sequence) -> None:
    engine = oracle(sequence.block_size, sequence.num_blocks, events=True)
    predictor = Predictor(sequence.block_size, sequence.num_blocks)
    mirror = PoolMirror()
    for number, request in enumerate(sequence.requests):
        predictor.predict_next(request.prompt_ids, request.cache_salt)
        predictor.record(request.output_ids, overrun_tokens=request.overrun_tokens)
        engine.run(request)
        mirror.apply(number, [_event(event) for event in engine.manager.take_events()])
        assert mirror.difference(predictor.contents()).agrees
    engine.manager.reset_prefix_cache()
    mirror.apply(len(sequence.requests), [_event(event) for event in engine.manager.take_events()])
    assert not mirror.contents()


def _event(event: Any) -> KVEvent:
    match type(event).__name__:
        case "BlockStored":
            return BlocksStored(
                keys=tuple(event.block_hashes),
                parent=event.parent_block_hash,
                token_ids=tuple(event.token_ids),
            )
        case "BlockRemoved":
            return BlocksRemoved(keys=tuple(event.block_hashes))
        case name:
            assert name == "AllBlocksCleared"
            return AllBlocksCleared()


class Flight:
    """One request on its way through an engine that interleaves several."""

    def __init__(self, engine: Any, request: PrefixRequest, now: int) -> None:
        self.engine, self.request, self.sent = engine, request, now
        self.running = engine.start(request)
        self.hit: int | None = None
        self.first_token: int | None = None

    def step(self, chunk: int, now: int) -> bool:
        """Do one engine step; say whether the request is finished and its blocks are free."""
        if self.hit is None:
            self.hit = self.engine.admit(self.running, chunk)
            assert self.hit is not None
        elif (left := len(self.request.prompt_ids) - self.running.num_computed_tokens) > 0:
            self.engine.compute(self.running, min(left, chunk))
        else:
            self.engine.compute(self.running, 1)
        if self.running.num_computed_tokens < len(self.request.prompt_ids):
            return False
        self.first_token = now if self.first_token is None else self.first_token
        if (done := self.running.num_output_tokens) < len(self.request.output_ids):
            self.running.append_output_token_ids(self.request.output_ids[done])
        if self.running.num_output_tokens < len(self.request.output_ids):
            return False
        self.engine.manager.free(self.running)
        return True


@settings(max_examples=1000)
@given(sequence=sequences(), roomy=st.booleans(), seed=st.integers(0, 2**32))
def test_bounds_hold_when_requests_overlap(
    oracle: MakeOracle, sequence: Sequence, roomy: bool, seed: int
) -> None:
    """Two at a time, prefill in chunks, in a random order of steps; the pool has room for any two."""
    rng = random.Random(seed)
    num_blocks = sequence.endless if roomy else 2 * sequence.num_blocks
    engine = oracle(sequence.block_size, num_blocks)
    waiting = list(sequence.requests)
    flights: list[Flight] = []
    timed: list[TimedRequest] = []
    hits: list[int] = []
    now = 0
    while waiting or flights:
        now += 1
        if waiting and len(flights) < 2 and (not flights or rng.random() < 0.3):
            flights.append(Flight(engine, waiting.pop(0), now))
            continue
        flight = rng.choice(flights)
        if flight.step(rng.randrange(1, 30), now):
            flights.remove(flight)
            assert flight.first_token is not None and flight.hit is not None
            timed.append(
                TimedRequest(
                    request=flight.request, sent=flight.sent, first_token=flight.first_token, finished=now
                )
            )
            hits.append(flight.hit)
    for blocks in (num_blocks, None) if roomy else (num_blocks,):
        bounds = bound_cached(timed, block_size=sequence.block_size, num_blocks=blocks)
        for bound, hit in zip(bounds, hits, strict=True):
            assert bound.low <= hit <= bound.high


def test_a_request_that_skips_the_cache_stores_its_blocks_anew(oracle: MakeOracle) -> None:
    """Prompt log-probabilities: nothing is read, so equal blocks are computed twice and may evict others."""
    rng = random.Random(5)
    for _ in range(60):
        num_blocks = rng.randrange(12, 20)
        engine, predictor = oracle(4, num_blocks), Predictor(4, num_blocks)
        for _turn in range(8):
            prompt = tuple(rng.randrange(2) for _ in range(rng.randrange(1, 30)))
            reads = rng.random() < 0.6
            prediction = predictor.predict_next(prompt)
            predictor.record(reads_cache=reads)
            running = engine.start(PrefixRequest(prompt_ids=prompt))
            running.skip_reading_prefix_cache = not reads
            hit = engine.admit(running)
            engine.manager.free(running)
            assert hit == (prediction.cached_tokens if reads else 0)
            assert predictor.pool is not None
            assert predictor.pool.eviction_order() == engine.eviction_order()
