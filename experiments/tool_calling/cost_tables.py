"""What the records of the study `tool-calling-cost` say: waiting and writing, one turn after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from experiments.framework import Analysis, Arm, Bar, BarFigure, Exclusion, Table, TrialRecord
from experiments.framework.analysis import Cell, arms_that_ran
from experiments.framework.arms import NULL_REBUILD
from experiments.framework.measured import agreement
from experiments.framework.statistics import (
    SEEDS_FOR_INTERVAL,
    Interval,
    PairedEffect,
    by_cluster,
    mean_over_clusters,
    paired_effect,
)
from experiments.framework.trials import CallRecord
from experiments.tool_calling.names import AUTO, EXCLUDED, REQUIRED

Times = dict[str, list[float]]
"""Cluster to seconds."""

Choice = Callable[[Sequence[CallRecord]], Sequence[CallRecord]]
"""Some of the calls of a turn."""


def analyse_cost(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Analysis:
    """First tokens of first and later calls, speed of writing, and what requiring a call costs; all computed."""
    asked = [record for record in records if EXCLUDED not in record.measures and record.calls]
    ran = arms_that_ran(arms, asked)
    left_out = sum(EXCLUDED in record.measures for record in records)
    return Analysis(
        conclusion=" ".join(_conclusion(asked)),
        tables=(_table(ran, asked),),
        figures=tuple(_figures(ran, asked)),
        exclusions=(Exclusion(reason="no isolation here for the interpreter", trials=left_out),)
        if left_out
        else (),
    )


def _conclusion(records: Sequence[TrialRecord]) -> Iterator[str]:
    calls = [call for record in records for call in record.calls]
    yield agreement(calls)
    first, later = (
        mean_over_clusters(ttft(records, AUTO, first_call)),
        mean_over_clusters(ttft(records, AUTO, later_call)),
    )
    if first is not None and later is not None:
        yield (
            f"The first call of a turn waits {_seconds(first)} for its first token, a later one, which reads the tools "
            f"out of the cache, {_seconds(later)}."
        )
    speed = mean_over_clusters(by_cluster(records, AUTO, "tokens_per_s"))
    if speed is not None:
        yield f"The model writes {speed.words()} tokens a second."
    effect = _against(records, REQUIRED)
    noise = _against(records, NULL_REBUILD)
    if effect is not None:
        yield _price(effect)
    if noise is not None:
        yield f"Rebuilding the same request changes the wait by {noise.interval.words('+.2f')} s, which is noise."


def _price(effect: PairedEffect) -> str:
    if effect.interval.excludes_zero:
        return (
            f"Requiring a call changes the wait of the first call by {effect.interval.words('+.2f')} s "
            f"({effect.clusters} prompts)."
        )
    return (
        f"Requiring a call does not change the wait of the first call beyond chance: {effect.interval.words('+.2f')} s "
        f"({effect.clusters} prompts; {effect.would_have_found('.2g')})."
    )


def first_call(calls: Sequence[CallRecord]) -> Sequence[CallRecord]:
    """The call that reads everything anew."""
    return calls[:1]


def later_call(calls: Sequence[CallRecord]) -> Sequence[CallRecord]:
    """The calls that extend another."""
    return calls[1:]


def ttft(records: Sequence[TrialRecord], arm: str, chosen: Choice) -> Times:
    """Seconds to the first token of the chosen calls, by cluster; prompts without such a call are left out."""
    found: Times = {}
    for record in records:
        if record.arm == arm:
            times = [call.ttft_s for call in chosen(record.calls) if call.ttft_s is not None]
            if times:
                found.setdefault(record.spec.cluster, []).append(float(np.mean(times)))
    return found


def _against(records: Sequence[TrialRecord], arm: str) -> PairedEffect | None:
    one, other = ttft(records, arm, first_call), ttft(records, AUTO, first_call)
    if len(one.keys() & other.keys()) < SEEDS_FOR_INTERVAL:
        return None
    return paired_effect(one, other, np.random.default_rng(0))


def _share(
    records: Sequence[TrialRecord], chosen: Callable[[Sequence[CallRecord]], Sequence[CallRecord]]
) -> float | None:
    calls = [call for record in records for call in chosen(record.calls)]
    prompt = sum(call.prompt_tokens or 0 for call in calls)
    cached = sum(call.cached_tokens or 0 for call in calls)
    return cached / prompt if prompt else None


_CHOSEN: Final = {"first call": first_call, "later calls": later_call}


def _table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        own = [record for record in records if record.arm == arm.name]
        for name, chosen in _CHOSEN.items():
            waits = mean_over_clusters(ttft(records, arm.name, chosen))
            speed = mean_over_clusters(by_cluster(records, arm.name, "tokens_per_s"))
            rows.append(
                (
                    arm.title,
                    name,
                    sum(len(chosen(record.calls)) for record in own),
                    _share(own, chosen),
                    None if waits is None else waits.words(),
                    None if speed is None else speed.words(),
                )
            )
    return Table(
        title="Waiting and writing",
        columns=(
            "arm",
            "which calls",
            "calls",
            "cached share",
            "TTFT, s [95 %]",
            "tokens a second, whole turns [95 %]",
        ),
        rows=tuple(rows),
        note="One turn at a time, each with a cache salt of its own, so every first call is cold. Means over prompts; "
        f"intervals resample prompts and need {SEEDS_FOR_INTERVAL}.",
    )


def _figures(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Iterator[BarFigure]:
    bars = []
    for arm in arms:
        for name, chosen in _CHOSEN.items():
            waits = mean_over_clusters(ttft(records, arm.name, chosen))
            if waits is not None:
                bars.append(Bar.of(f"{arm.title}: {name}", waits))
    yield BarFigure(
        name="waiting",
        title="Waiting for the first token",
        axis="seconds",
        bars=tuple(bars),
        caption="Means over prompts with 95 % bootstrap intervals.",
    )


def _seconds(interval: Interval) -> str:
    return f"{interval.words()} s"
