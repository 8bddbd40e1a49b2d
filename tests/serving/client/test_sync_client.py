from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from serving.client import (
    Client,
    CpuEngineLimits,
    ErrorKind,
    InterruptedExchange,
    RefusedRequestError,
    TextDelta,
)
from serving.errors import LabError
from tests.support.asking import ask


def _own_threads() -> int:
    return sum(thread.name == "ctxlab-client" for thread in threading.enumerate())


def test_it_works_inside_a_loop_that_already_runs(client):
    async def cell() -> str:
        return "".join(
            event.text for event in client.stream(ask("role-first")) if isinstance(event, TextDelta)
        )

    assert asyncio.run(cell()) == "One two three"


def test_a_consumer_that_sleeps_does_not_move_the_stamps(client):
    stream = client.stream(ask("role-first"))
    next(stream)
    time.sleep(0.6)  # the whole script takes a fifth of this
    woke_ns = time.perf_counter_ns()
    list(stream)
    timings = stream.exchange.timings
    assert timings.sent_ns + timings.done_ns < woke_ns


def test_several_streams_run_at_once(client):
    streams = [client.stream(ask("reasoning-then-tools")) for _ in range(4)]
    for stream in streams:
        list(stream)
    exchanges = [stream.exchange for stream in streams]
    latest_start = max(exchange.timings.sent_ns for exchange in exchanges)
    assert all(e.timings.sent_ns + e.timings.done_ns > latest_start for e in exchanges)


def test_leaving_the_block_early_cancels_the_call_and_keeps_what_arrived(client):
    with client.stream(ask("silence")) as stream:
        for event in stream:
            if isinstance(event, TextDelta):
                break
    assert stream.exchange.error.kind is ErrorKind.CANCELLED
    assert stream.exchange.text.startswith("t")


def test_a_stream_closed_at_once_ends(client):
    for _ in range(50):
        stream = client.stream(ask("mute"))
        stream.close()
        assert stream.exchange.error.kind is ErrorKind.CANCELLED
        assert list(stream) == []


def test_a_finished_stream_stays_finished(client):
    with client.stream(ask("role-first")) as stream:
        list(stream)
    assert list(stream) == []
    assert stream.exchange.error is None


@pytest.mark.parametrize("whole", [True, False])
def test_ctrl_c_cancels_and_the_partial_exchange_is_there(client, whole):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        if whole:
            with pytest.raises(InterruptedExchange) as caught:
                client.chat(ask("silence"))
            exchange = caught.value.exchange
        else:
            stream = client.stream(ask("silence"))
            with pytest.raises(KeyboardInterrupt):
                for _ in stream:
                    pass
            exchange = stream.exchange
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert exchange.error.kind is ErrorKind.CANCELLED
    assert exchange.text == "t" * 10


def test_closing_ends_the_thread_and_the_calls_that_still_run(stub):
    threads = _own_threads()
    made = Client(stub.base_url)
    streams = [made.stream(ask("mute")) for _ in range(3)]
    made.close()
    made.close()
    assert _own_threads() == threads
    for stream in streams:
        assert list(stream) == []
        assert stream.exchange.error.kind is ErrorKind.CANCELLED
        stream.close()
    with pytest.raises(LabError, match="closed"):
        made.stream(ask("role-first"))


def test_a_forgotten_client_ends_with_its_last_reference(stub):
    threads = _own_threads()
    made = Client(stub.base_url)
    made.chat(ask("no-usage"))
    del made
    gc.collect()
    assert _own_threads() == threads


def test_a_refused_request_is_not_sent(stub):
    with (
        Client(stub.base_url, cpu_limits=CpuEngineLimits(max_num_batched_tokens=8)) as made,
        pytest.raises(RefusedRequestError),
    ):
        made.stream(ask("role-first", seed=1, temperature=1.0))


def test_the_manifest_and_the_servers_fingerprint_are_in_the_record(stub):
    with Client(stub.base_url, server_fingerprint="vllm-x") as made:
        exchange = made.chat(ask("no-usage"), manifest_id="m-1")
    assert (exchange.manifest_id, exchange.server_fingerprint) == ("m-1", "vllm-x")


def test_a_program_that_forgets_its_client_ends(stub):
    program = (
        "from serving.client import Client, ChatRequest\n"
        f"client = Client({stub.base_url!r})\n"
        "stream = client.stream(ChatRequest(model='mute', messages=({'role': 'user', 'content': 'x'},)))\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_importing_the_room_is_light():
    program = (
        "import sys, serving.client\n"
        "print([n for n in ('torch', 'transformers', 'vllm', 'openai', 'numpy') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
