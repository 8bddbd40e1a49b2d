"""A record as a run would have kept it, for tests that are about something else than how it came to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from experiments.framework.trials import (
    CacheState,
    CacheTemperature,
    CallRecord,
    Measure,
    OutcomeKind,
    TrialRecord,
)


def made_record(
    study: str,
    arm: str,
    task: str,
    seed: int,
    measures: Mapping[str, Measure],
    *,
    calls: Sequence[CallRecord] = (),
    factors: Mapping[str, JsonValue] | None = None,
    kind: OutcomeKind = OutcomeKind.OK,
) -> TrialRecord:
    """The first attempt at a trial, in a run of one session."""
    return TrialRecord(
        study=study,
        arm=arm,
        factors=dict(factors or {}),
        task=task,
        seed=seed,
        repeat=0,
        order_index=0,
        attempt=1,
        salt="s",
        session=0,
        environment="e",
        started="2026-01-01T00:00:00Z",
        seconds=1.0,
        kind=kind,
        outcome="",
        cache=CacheState(temperature=CacheTemperature.UNPROVEN, proof=""),
        measures=dict(measures),
        calls=tuple(calls),
    )
