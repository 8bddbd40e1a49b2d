from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast
from uuid import uuid4

import pytest

from experiments.workloads import file_tour
from serving.assembler import AssemblyRequest, ContextPolicy, HandOff, RequestContext
from serving.call import Caller, DecodeOptions, MeasuredCall, StartedCall, check_equal
from serving.client import Client, Surface
from serving.errors import InequalityError, UsageError
from serving.models import ensure
from tests.conftest import LIVE_MODEL, LiveServer

ONE_TOKEN = DecodeOptions(max_tokens=1)


def ask(call: int, *, window: int = 8192, max_output: int = 64) -> AssemblyRequest:
    context = RequestContext(tenant="t", actor="a", now=datetime(2026, 1, 1, tzinfo=UTC))
    return file_tour().request(call, context=context, window=window, max_output=max_output)


@pytest.fixture(scope="module")
def client(live_server: LiveServer) -> Iterator[Client]:
    with Client(live_server.base_url) as made:
        yield made


def caller(client: Client, live: LiveServer, surface: Surface = Surface.CHAT) -> Caller:
    return Caller(client, ensure(LIVE_MODEL), block_size=live.block_size, surface=surface)


def made_up(*, served: tuple[int, ...] | None, cached: int | None) -> MeasuredCall:
    """A call whose rendered ids are 1 to 9 with 4 cached tokens predicted."""
    call = SimpleNamespace(
        packet=SimpleNamespace(manifest=SimpleNamespace(manifest_id="m" * 64)),
        rendered=SimpleNamespace(token_ids=tuple(range(1, 10))),
        prediction=SimpleNamespace(cached_tokens=4, prompt_tokens=9),
        exchange=SimpleNamespace(prompt_token_ids=served),
        cached_tokens=cached,
        prediction_agrees=None if cached is None else cached == 4,
    )
    return cast(MeasuredCall, call)


def test_equal_sides_pass() -> None:
    check_equal(made_up(served=tuple(range(1, 10)), cached=4))


@pytest.mark.parametrize(
    ("served", "cached", "both"),
    [
        ((1, 2, 3, 99, 5, 6, 7, 8, 9), 4, ("token 3", "[4, 5", "[99, 5")),
        ((1, 2, 3), 4, ("token 3", "9 ids", "3 ids")),
        (None, 4, ("9 ids", "none at all")),
        (tuple(range(1, 10)), 8, ("4 of 9 as predicted", "got 8")),
        (tuple(range(1, 10)), None, ("4 of 9 as predicted", "none reported")),
    ],
)
def test_an_inequality_stops_with_both_sides_shown(
    served: tuple[int, ...] | None, cached: int | None, both: tuple[str, ...]
) -> None:
    with pytest.raises(InequalityError) as stopped:
        check_equal(made_up(served=served, cached=cached))
    for words in both:
        assert words in str(stopped.value)


@pytest.mark.parametrize("cached", [0, 8, None])
def test_where_nothing_can_be_predicted_only_the_ids_have_to_agree(cached: int | None) -> None:
    check_equal(made_up(served=tuple(range(1, 10)), cached=cached), predictable=False)
    with pytest.raises(InequalityError, match="Prompt ids"):
        check_equal(made_up(served=(1, 2, 3), cached=cached), predictable=False)


@pytest.mark.live
def test_both_surfaces_read_the_same_ids_and_share_the_cache(client: Client, live_server: LiveServer) -> None:
    salt = uuid4().hex
    chat = caller(client, live_server).call(ask(3), ContextPolicy(), ONE_TOKEN, salt=salt)
    assert isinstance(chat, MeasuredCall)
    assert chat.ids_agree
    assert chat.prediction_agrees
    # The second caller has predicted nothing yet: what the first one left is found by the server alone.
    loose = Caller(
        client,
        ensure(LIVE_MODEL),
        block_size=live_server.block_size,
        surface=Surface.TOKEN_IN,
        strict=False,
    )
    again = loose.call(ask(3), ContextPolicy(), ONE_TOKEN, salt=salt)
    assert isinstance(again, MeasuredCall)
    assert again.rendered.token_ids == chat.rendered.token_ids
    size, prompt = live_server.block_size, len(chat.rendered.token_ids)
    assert again.cached_tokens == size * ((prompt - 1) // size)
    assert again.prediction_agrees is False


@pytest.mark.live
def test_strict_work_stops_where_the_server_knows_more_than_was_predicted(
    client: Client, live_server: LiveServer
) -> None:
    salt = uuid4().hex
    caller(client, live_server).call(ask(3), ContextPolicy(), ONE_TOKEN, salt=salt)
    with pytest.raises(InequalityError, match="expected 0 of"):
        caller(client, live_server).call(ask(3), ContextPolicy(), ONE_TOKEN, salt=salt)


@pytest.mark.live
def test_the_exchange_names_its_manifest(client: Client, live_server: LiveServer) -> None:
    call = caller(client, live_server).call(ask(0), ContextPolicy(), ONE_TOKEN, salt=uuid4().hex)
    assert isinstance(call, MeasuredCall)
    assert call.exchange.manifest_id == call.packet.manifest.manifest_id
    assert call.packet.manifest.prompt_tokens == len(call.rendered.token_ids)


@pytest.mark.live
def test_a_packet_that_does_not_fit_is_handed_off_before_anything_is_sent(
    client: Client, live_server: LiveServer
) -> None:
    spine = caller(client, live_server)
    outcome = spine.call(ask(3, window=200), ContextPolicy(), ONE_TOKEN, salt="unused")
    assert isinstance(outcome, HandOff)
    assert outcome.shortfall > 0
    assert isinstance(spine.call(ask(0), ContextPolicy(), ONE_TOKEN, salt=uuid4().hex), MeasuredCall)


@pytest.mark.live
def test_a_cancelled_call_spends_its_salt_and_no_other(client: Client, live_server: LiveServer) -> None:
    spine, salt = caller(client, live_server), uuid4().hex
    # So many that the server still writes when the call is cancelled, however late a busy machine lets us do it.
    started = spine.start(ask(2), ContextPolicy(), DecodeOptions(max_tokens=2048), salt=salt)
    assert isinstance(started, StartedCall)
    next(iter(started))
    assert started.cancel().error is not None
    with pytest.raises(UsageError, match="new salt"):
        spine.call(ask(2), ContextPolicy(), ONE_TOKEN, salt=salt)
    call = spine.call(ask(2), ContextPolicy(), ONE_TOKEN, salt=uuid4().hex)
    assert isinstance(call, MeasuredCall)
    assert call.prediction_agrees
