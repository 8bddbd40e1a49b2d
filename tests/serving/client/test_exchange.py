from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.client import Arrival, ErrorKind, Exchange, ExchangeError, Surface, Timings, Usage
from serving.errors import LabError


def make(arrivals_ns: list[int], *, tokens: int | None = None, **more: object) -> Exchange:
    fields: dict[str, object] = {
        "surface": Surface.CHAT,
        "request": {"model": "m", "messages": []},
        "prompt_token_ids": (1, 2),
        "output_token_ids": None,
        "text": "",
        "reasoning": "",
        "tool_calls": (),
        "finish_reason": "stop",
        "usage": None
        if tokens is None
        else Usage(prompt_tokens=8, completion_tokens=tokens, cached_tokens=None),
        "metrics": None,
        "timings": Timings(
            started_at=datetime.now(UTC),
            sent_ns=1,
            connect_ns=0,
            first_byte_ns=None,
            first_token_ns=arrivals_ns[0] if arrivals_ns else None,
            last_token_ns=arrivals_ns[-1] if arrivals_ns else None,
            done_ns=10**10,
            arrivals=tuple(Arrival(at_ns=at, tokens=1) for at in arrivals_ns),
        ),
    }
    return Exchange.model_validate(fields | more)


@given(st.lists(st.integers(1, 10**12), min_size=2, unique=True).map(sorted), st.integers(2, 10_000))
def test_tpot_times_the_later_tokens_plus_ttft_is_the_latency_and_gaps_add_up(arrivals, tokens):
    exchange = make(arrivals, tokens=tokens)
    assert exchange.ttft_s + exchange.tpot_s * (tokens - 1) == pytest.approx(exchange.latency_s)
    assert exchange.ttft_s + sum(exchange.itl_s) == pytest.approx(exchange.latency_s)


def test_what_is_unknown_is_none_and_never_zero():
    exchange = make([])
    assert exchange.ttft_s is exchange.latency_s is exchange.tpot_s is None
    assert exchange.output_tokens is exchange.cached_share is None
    assert make([5], tokens=1).tpot_s is None
    assert make([5, 6], tokens=2).cached_share is None  # prompt tokens known, cached tokens not


def test_a_failed_call_has_a_ttft_but_no_latency():
    error = ExchangeError(kind=ErrorKind.CUT, sentence="cut")
    exchange = make([5, 9], tokens=2, error=error)
    assert exchange.ttft_s is not None
    assert exchange.latency_s is exchange.tpot_s is None
    with pytest.raises(LabError, match="cut"):
        exchange.raise_for_error()


def test_output_tokens_are_the_servers_count_else_the_ids():
    assert make([5], tokens=3, output_token_ids=(1,)).output_tokens == 3
    assert make([5], output_token_ids=(1, 2)).output_tokens == 2
