"""Exchanges and records with chosen times, for tests of what is computed from them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from experiments.framework.trials import Measure, TrialRecord
from experiments.latency.cells import base_load
from experiments.latency.load import Loaded, Sent
from serving.client import Arrival, Exchange, Surface, Timings, Usage
from tests.support.made_record import made_record


def exchange_of(
    *, arrivals_s: Sequence[float], sent_s: float = 0, prompt: int = 100, cached: int = 0, text: str = "hi"
) -> Exchange:
    """A call with one token at each of `arrivals_s`, seconds after sending."""
    stamps = [round(at * 1e9) for at in arrivals_s]
    return Exchange(
        surface=Surface.TOKEN_IN,
        request={},
        prompt_token_ids=None,
        output_token_ids=(7,) * len(stamps),
        text=text,
        reasoning="",
        tool_calls=(),
        finish_reason="length",
        usage=Usage(prompt_tokens=prompt, completion_tokens=len(stamps), cached_tokens=cached),
        metrics=None,
        timings=Timings(
            started_at=datetime(2026, 1, 1, tzinfo=UTC),
            sent_ns=round(sent_s * 1e9),
            connect_ns=0,
            first_byte_ns=stamps[0],
            first_token_ns=stamps[0],
            last_token_ns=stamps[-1],
            done_ns=stamps[-1],
            arrivals=tuple(Arrival(at_ns=at, tokens=1) for at in stamps),
        ),
    )


def loaded_of(exchanges: Sequence[Exchange], *, full_to_s: float, clients: int = 1, turns: int = 1) -> Loaded:
    """These calls as one load, full from the first of them to `full_to_s`.

    `clients` that keep step have the calls in turn, and each begins a conversation anew after `turns` of them.
    """
    calls = []
    for place, exchange in enumerate(exchanges):
        step, client = divmod(place, clients)
        talk, turn = divmod(step, turns)
        calls.append(Sent(exchange, talk * clients + client, turn, 0, 0.0))
    return Loaded(tuple(calls), exchanges[0].timings.sent_ns, round(full_to_s * 1e9))


def record_of(arm: str, seed: int, measures: dict[str, Measure], **load: int | str) -> TrialRecord:
    """A scored trial with these measures."""
    factors = {**base_load(), **{f"load.{name}": value for name, value in load.items()}}
    return made_record("latency", arm, "requests-4", seed, measures, factors=factors)
