from __future__ import annotations

import asyncio

import pytest

from serving.client import (
    AsyncClient,
    CompletionRequest,
    ErrorKind,
    Exchange,
    Failure,
    Finish,
    HeldTokens,
    PromptIds,
    ReasoningDelta,
    TextDelta,
    ToolCallComplete,
    ToolCallFragment,
    UsageReport,
)
from serving.client.async_client import api_root
from serving.errors import LabError, UsageError
from tests.support.asking import ask
from tests.support.scripts import PROMPT_IDS, QUOTED_KEY


def events_of(client, request):
    stream = client.stream(request)
    return list(stream), stream.exchange


def test_the_role_chunk_first_then_text_then_usage(client):
    events, exchange = events_of(client, ask("role-first"))
    assert [type(event) for event in events] == [
        PromptIds,
        TextDelta,
        TextDelta,
        TextDelta,
        HeldTokens,
        Finish,
        UsageReport,
    ]
    assert exchange.error is None
    assert (exchange.text, exchange.finish_reason) == ("One two three", "stop")
    assert (exchange.prompt_token_ids, exchange.output_token_ids) == (PROMPT_IDS, (100, 101, 102, 999))
    assert (exchange.usage.prompt_tokens, exchange.usage.cached_tokens) == (5, 4)
    assert exchange.timings.first_byte_ns < exchange.timings.first_token_ns  # the role came before


def test_a_tool_call_is_complete_before_the_next_one_is_named(client):
    events, exchange = events_of(client, ask("reasoning-then-tools"))
    kinds = [type(event) for event in events]
    first_complete = kinds.index(ToolCallComplete)
    second_named = next(
        i for i, event in enumerate(events) if isinstance(event, ToolCallFragment) and event.name == "read"
    )
    assert first_complete < second_named
    assert kinds.count(ToolCallComplete) == 2
    assert [call.arguments for call in exchange.tool_calls] == ['{"q": "a } \\" b"}', '{"n": [1]}']
    assert [call.id for call in exchange.tool_calls] == ["call-0", "call-1"]
    assert exchange.tool_calls[0].closed_ns < exchange.tool_calls[1].first_ns
    assert (exchange.reasoning, exchange.text) == ("Let me look.", "Looking up.")
    assert exchange.metrics == {"queue_ms": 1.5}
    assert isinstance(events[1], ReasoningDelta)
    assert events[1].at_ns == exchange.timings.first_token_ns


def test_a_chunk_of_several_tokens_is_one_arrival(client):
    exchange = client.chat(ask("several-tokens-a-chunk"))
    assert [arrival.tokens for arrival in exchange.timings.arrivals] == [1, 3, 2]
    assert len(exchange.itl_s) == 2


def test_tokens_that_the_parser_holds_count_when_they_arrive(client):
    events, exchange = events_of(client, ask("held-back"))
    assert exchange.timings.first_token_ns == next(e.at_ns for e in events if isinstance(e, HeldTokens))
    assert exchange.text == "<tool_ca was text!"
    assert [arrival.tokens for arrival in exchange.timings.arrivals] == [1, 1, 1, 1]


def test_a_character_split_over_packets_is_read_whole_and_stamped_by_its_end(client, stub):
    exchange = client.chat(ask("split-utf8", extra={"request_id": "utf8"}))
    assert exchange.text == "naïve 日本 🙂"
    *_, completing, _, _ = [at for at, _ in stub.log("utf8")["sends"]]
    assert exchange.timings.sent_ns + exchange.timings.first_token_ns > completing


def test_no_token_is_stamped_before_the_server_sent_it(client, stub):
    exchange = client.chat(ask("role-first", extra={"request_id": "order"}))
    log = stub.log("order")
    sends = [at for at, token in log["sends"] if token]
    arrivals = [exchange.timings.sent_ns + arrival.at_ns for arrival in exchange.timings.arrivals]
    assert all(sent < arrived for sent, arrived in zip(sends, arrivals, strict=True))
    assert exchange.timings.sent_ns < log["received_ns"]


def test_the_request_is_recorded_as_it_was_sent(client, stub):
    exchange = client.chat(ask("role-first", extra={"request_id": "sent"}, cache_salt="é"))
    assert exchange.request == stub.log("sent")["body"]


def test_neither_the_key_nor_the_users_account_leaks(stub, monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "sk-stranger")

    async def call(key: str | None) -> Exchange:
        async with AsyncClient(stub.base_url, key) as client:
            return await client.chat(ask("no-usage", extra={"request_id": "leak"}))

    exchange = asyncio.run(call(None))
    assert "sk-stranger" not in str(stub.log("leak"))
    exchange = asyncio.run(call("sk-own"))
    assert stub.log("leak")["headers"]["authorization"] == "Bearer sk-own"
    assert "sk-own" not in exchange.model_dump_json()


def test_usage_that_does_not_come_is_unknown(client):
    exchange = client.chat(ask("no-usage"))
    assert exchange.error is None
    assert exchange.usage is None
    assert exchange.tpot_s is None


def test_a_server_that_tells_nothing_extra_leaves_unknowns(client):
    exchange = client.chat(ask("bare"))
    assert exchange.error is None
    assert exchange.prompt_token_ids is exchange.output_token_ids is exchange.usage.cached_tokens is None
    assert [arrival.tokens for arrival in exchange.timings.arrivals] == [None, None]
    assert exchange.tpot_s == pytest.approx((exchange.latency_s - exchange.ttft_s) / 2)


def test_the_token_surface_takes_and_gives_ids(client, stub):
    request = CompletionRequest(model="completion", prompt=(7, 8, 9), extra={"request_id": "ids"})
    exchange = client.complete(request)
    assert stub.log("ids")["body"]["prompt"] == [7, 8, 9]
    assert (exchange.prompt_token_ids, exchange.output_token_ids) == ((7, 8, 9), (1, 2, 3))
    assert exchange.text == "ab"


@pytest.mark.parametrize(
    ("script", "kind", "tokens", "status"),
    [
        ("error-after-ten", ErrorKind.SERVER_ERROR, 10, 500),
        ("cut", ErrorKind.CUT, 10, None),
        ("no-done", ErrorKind.CUT, 10, None),
        ("silence", ErrorKind.SILENCE, 10, None),
        ("mute", ErrorKind.SILENCE, 0, None),
        ("bad-json", ErrorKind.BAD_DATA, 10, None),
        ("bad-shape", ErrorKind.BAD_DATA, 0, None),
        ("not-a-stream", ErrorKind.BAD_DATA, 0, None),
        ("http-400", ErrorKind.HTTP_STATUS, 0, 400),
        ("http-503", ErrorKind.HTTP_STATUS, 0, 503),
    ],
)
def test_a_failure_keeps_what_arrived_and_is_the_last_event(client, script, kind, tokens, status):
    events, exchange = events_of(client, ask(script))
    assert (exchange.error.kind, exchange.error.status) == (kind, status)
    assert len(exchange.output_token_ids or ()) == tokens
    assert events[-1].error == exchange.error
    assert sum(isinstance(event, Failure) for event in events) == 1
    assert exchange.latency_s is None
    assert Exchange.model_validate_json(exchange.model_dump_json()) == exchange


def test_the_servers_own_words_are_kept(client):
    assert "told to answer 400" in client.chat(ask("http-400")).error.body


def test_a_key_that_the_server_quotes_is_not_kept(stub):
    async def refused() -> Exchange:
        async with AsyncClient(stub.base_url, QUOTED_KEY) as client:
            return await client.chat(ask("http-401"))

    exchange = asyncio.run(refused())
    assert "incorrect API key [API key]" in exchange.error.sentence
    assert QUOTED_KEY not in exchange.model_dump_json()


def test_nobody_is_asked_twice(client, stub):
    client.chat(ask("http-503", extra={"request_id": "once"}))
    assert stub.log("once")["headers"]["x-stainless-retry-count"] == "0"


def test_a_server_that_keeps_the_connection_open_after_done_does_not_hold_the_call(client):
    assert client.chat(ask("done-but-open")).error is None


def test_a_port_where_nobody_listens_is_unreachable():
    async def call() -> Exchange:
        async with AsyncClient("http://127.0.0.1:1") as client:
            return await client.chat(ask("m"))

    exchange = asyncio.run(call())
    assert exchange.error.kind is ErrorKind.UNREACHABLE
    assert "127.0.0.1:1" in exchange.error.sentence


@pytest.mark.parametrize("script", ["role-first", "reasoning-then-tools", "bare", "completion"])
def test_an_exchange_survives_json(client, script):
    exchange = client.chat(ask(script))
    assert Exchange.model_validate_json(exchange.model_dump_json()) == exchange


def test_a_cancelled_task_leaves_a_partial_exchange(stub):
    async def call() -> Exchange:
        async with AsyncClient(stub.base_url) as client:
            stream = client.stream(ask("silence", extra={"request_id": "cancelled"}))
            enough = asyncio.Event()

            async def read() -> None:
                texts = 0
                async for event in stream:
                    texts += isinstance(event, TextDelta)
                    if texts == 10:
                        enough.set()

            task = asyncio.create_task(read())
            await enough.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return stream.exchange

    exchange = asyncio.run(call())
    assert exchange.error.kind is ErrorKind.CANCELLED
    assert exchange.text == "t" * 10


def test_leaving_the_block_early_cancels_and_an_unfinished_call_has_no_exchange(stub):
    async def call() -> Exchange:
        async with AsyncClient(stub.base_url) as client, client.stream(ask("silence")) as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    break
            with pytest.raises(LabError, match="still running"):
                _ = stream.exchange
        return stream.exchange

    exchange = asyncio.run(call())
    assert (exchange.error.kind, exchange.text) == (ErrorKind.CANCELLED, "t")


def test_a_stream_closed_before_its_first_event_sends_nothing(stub):
    async def call() -> Exchange:
        async with AsyncClient(stub.base_url) as client:
            stream = client.stream(ask("role-first"))
            await stream.aclose()
            return stream.exchange

    exchange = asyncio.run(call())
    assert exchange.error.kind is ErrorKind.CANCELLED
    assert exchange.timings.first_byte_ns is None


def test_many_streams_at_once_do_not_mix(stub):
    async def call() -> list[Exchange]:
        async with AsyncClient(stub.base_url) as client:
            return await asyncio.gather(
                *(client.chat(ask("role-first" if i % 2 else "reasoning-then-tools")) for i in range(40))
            )

    exchanges = asyncio.run(call())
    assert {exchange.text for exchange in exchanges[1::2]} == {"One two three"}
    assert {exchange.text for exchange in exchanges[::2]} == {"Looking up."}


@pytest.mark.parametrize(
    ("given_url", "root"),
    [
        ("http://h:1", "http://h:1/v1"),
        ("http://h:1/", "http://h:1/v1"),
        ("http://h:1/v1/", "http://h:1/v1"),
        ("https://h/api/v1", "https://h/api/v1"),
    ],
)
def test_a_base_url_may_name_the_root_or_the_api(given_url, root):
    assert api_root(given_url) == root


def test_a_url_without_a_scheme_is_refused():
    with pytest.raises(UsageError, match="scheme"):
        api_root("localhost:8000")
    with pytest.raises(UsageError, match="scheme"):
        api_root("http://[::1")
