"""Exchanges and records with chosen times, for tests of what is computed from them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from experiments.framework.trials import CacheState, CacheTemperature, Measure, OutcomeKind, TrialRecord
from experiments.latency.cells import base_load
from serving.client import Arrival, Exchange, Surface, Timings, Usage


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


def record_of(arm: str, seed: int, measures: dict[str, Measure], **load: int | str) -> TrialRecord:
    """A scored trial with these measures."""
    return TrialRecord(
        study="latency",
        arm=arm,
        factors={**base_load(), **{f"load.{name}": value for name, value in load.items()}},
        task="requests-4",
        seed=seed,
        repeat=0,
        order_index=0,
        attempt=1,
        salt="s",
        session=0,
        environment="e",
        started="2026-01-01T00:00:00.000+00:00",
        seconds=1.0,
        kind=OutcomeKind.OK,
        outcome="",
        cache=CacheState(temperature=CacheTemperature.UNPROVEN, proof=""),
        measures=measures,
    )
