from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.latency.definitions import (
    CallTimes,
    Chunk,
    ChunkKind,
    guidellm,
    in_window,
    ours,
    vllm_bench,
    whole_run,
)
from serving.client.fold import ReplyFold
from tests.support.made_load import exchange_of
from tests.support.scripts import TIMED, timed

KINDS = st.sampled_from([ChunkKind.REASONING, ChunkKind.TEXT])


def chunks_of(case: str) -> list[Chunk]:
    return [Chunk(beat.at_ms / 1e3, ChunkKind(beat.kind), beat.tokens) for beat in TIMED[case]]


@pytest.mark.parametrize("case", TIMED)
def test_our_reading_of_a_stream_is_what_the_client_records_of_it(case: str) -> None:
    fold = ReplyFold()
    for send in timed(TIMED[case]).sends:
        for event in send.data.decode().strip().split("\n\n"):
            list(fold.feed(event.removeprefix("data: "), round(send.at_ms * 1e6)))
    read = ours(chunks_of(case))
    assert fold.arrivals[0].at_ns == pytest.approx(1e9 * (read.ttft_s or 0))
    assert fold.last_token_ns == pytest.approx(1e9 * (read.latency_s or 0))
    assert len(fold.arrivals) == len(read.itl_s) + 1
    assert sum(arrival.tokens or 0 for arrival in fold.arrivals) == sum(beat.tokens for beat in TIMED[case])


def test_a_role_chunk_is_a_token_to_vllm_alone() -> None:
    chunks = chunks_of("timed-role-first")
    assert [read(chunks).ttft_s for read in (ours, vllm_bench, guidellm)] == [0.08, 0.005, 0.08]


def test_chunks_of_several_tokens_are_one_gap_and_count_for_the_time_per_token() -> None:
    read = ours(chunks_of("timed-several-a-chunk"))
    assert read.itl_s == pytest.approx([0.04] * 7)
    assert read.tpot_s == pytest.approx(0.28 / 23)


def test_guidellm_counts_the_prefill_into_its_time_per_token() -> None:
    read = guidellm(chunks_of("timed-slow-start"))
    assert read.tpot_s == pytest.approx((0.6 + 15 * 0.02) / 16)
    assert read.itl_s == pytest.approx([0.02])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0.001, 1), KINDS, st.integers(1, 4)), min_size=1, max_size=20))
def test_the_gaps_of_a_stream_add_up_to_its_latency_after_the_first_token(
    steps: list[tuple[float, ChunkKind, int]],
) -> None:
    at, chunks = 0.0, []
    for gap, kind, tokens in steps:
        at += gap
        chunks.append(Chunk(at, kind, tokens))
    read = ours(chunks)
    assert read.ttft_s is not None and read.latency_s is not None
    assert read.ttft_s + sum(read.itl_s) == pytest.approx(read.latency_s)
    assert vllm_bench(chunks) == read  # without role and finish chunks the two agree


def test_a_stream_without_a_token_has_no_times() -> None:
    nothing = CallTimes(None, (), None, None)
    assert ours([Chunk(0.1, ChunkKind.ROLE, 0)]) == nothing
    assert guidellm([Chunk(0.1, ChunkKind.ROLE, 0)]) == nothing


def test_a_window_counts_the_tokens_in_it_and_each_call_by_their_share() -> None:
    calls = [exchange_of(sent_s=0, arrivals_s=(1, 2, 3)), exchange_of(sent_s=1, arrivals_s=(1, 2, 9))]
    seen = in_window(calls, 2_000_000_000, 4_000_000_000)
    assert seen is not None
    assert seen.seconds == 2
    assert seen.requests_per_s == pytest.approx((2 / 3 + 2 / 3) / 2)
    assert seen.output_tokens_per_s == 2.0
    run = whole_run(calls)
    assert run is not None
    assert (run.seconds, run.requests_per_s, run.output_tokens_per_s) == (10, 0.2, 0.6)
    assert in_window(calls, 5, 5) is None


def test_clients_in_step_are_as_many_requests_a_second_as_they_send() -> None:
    # Four clients, two rounds of 10 s each; the window ends with the first client that has nothing left to send.
    calls = [
        exchange_of(sent_s=10 * turn, arrivals_s=(*range(1, 10), 10 + late / 100))
        for turn in range(2)
        for late in range(4)
    ]
    seen = in_window(calls, 0, 20_000_000_001)
    assert seen is not None
    assert seen.requests_per_s == pytest.approx(4 / 10, rel=0.05)


def test_the_scripted_events_are_json() -> None:
    for beats in TIMED.values():
        for send in timed(beats).sends:
            first = send.data.split(b"\n\n")[0].removeprefix(b"data: ")
            assert "choices" in json.loads(first)
