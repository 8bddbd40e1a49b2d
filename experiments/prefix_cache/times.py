"""Seconds: what each arm adds to the waits of append-only, and what a model of the machine says it should add."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.framework import Bar, BarFigure, PairedEffect, Table, TrialRecord, by_cluster, paired_effect
from experiments.framework.arms import NULL_REBUILD
from experiments.framework.statistics import (
    SEEDS_FOR_INTERVAL,
    Interval,
    cluster_means,
    mean_of,
)
from experiments.prefix_cache.arms import APPEND_ONLY
from experiments.prefix_cache.workload import Workload
from serving.errors import UsageError
from serving.explain.ttft import TtftModel, TtftSample, fit_ttft


def added_waits(workload: Workload) -> dict[str, PairedEffect]:
    """What each arm adds to append-only's sum of TTFT, by arm; intervals only where seeds suffice."""
    base = by_cluster(workload.records, APPEND_ONLY, "ttft_s")
    effects = {}
    for arm in workload.arms:
        times = by_cluster(workload.records, arm.name, "ttft_s")
        if arm.name != APPEND_ONLY and times.keys() & base.keys():
            effect = paired_effect(times, base, np.random.default_rng(0))
            effects[arm.name] = effect if effect.clusters >= SEEDS_FOR_INTERVAL else _bare(effect)
    return effects


def waits(workload: Workload, arm: str) -> Interval | None:
    """Mean sum of TTFT of a run; bounds only where seeds suffice, None where no time is known."""
    return mean_of(workload.records, arm, "ttft_s")


def total_time(workload: Workload, arm: str) -> Interval | None:
    """Mean seconds of all calls of a run from sending to the last token; bounds as `waits`."""
    return mean_of(workload.records, arm, "latency_s")


@dataclass(frozen=True)
class Foretold:
    """An arm's waits beside those that a model foretells that has seen no call of it."""

    arm: str
    title: str
    measured: Interval
    """The mean over seeds."""
    typical_s: float
    """The median over seeds: what a model that was fitted to the typical request can foretell."""
    predicted_s: float

    @property
    def error_s(self) -> float:
        """Predicted − typical."""
        return self.predicted_s - self.typical_s


def foretold(workload: Workload) -> tuple[Foretold, ...]:
    """Every arm predicted from the calls of all others; empty where seeds or shapes of requests are too few.

    Append-only and its null send the same bytes, so neither may teach the model about the other.
    """
    found: list[Foretold] = []
    for arm in workload.arms:
        measured = waits(workload, arm.name)
        twins = {APPEND_ONLY, NULL_REBUILD} if arm.name in (APPEND_ONLY, NULL_REBUILD) else {arm.name}
        model = _fitted([record for record in workload.records if record.arm not in twins])
        own = workload.of(arm.name)
        if model is None or measured is None or measured.low is None:
            return ()
        calls = [_sample(record, number) for record in own for number in range(len(record.calls))]
        if not all(calls):
            return ()
        seconds = sum(model.seconds(call.cached_tokens, call.uncached_tokens) for call in calls if call)
        typical = float(np.median(cluster_means(by_cluster(own, arm.name, "ttft_s"))))
        found.append(Foretold(arm.name, workload.label(arm), measured, typical, seconds / len(own)))
    return tuple(found)


def _fitted(records: Sequence[TrialRecord]) -> TtftModel | None:
    samples = [_sample(record, number) for record in records for number in range(len(record.calls))]
    try:
        return fit_ttft([sample for sample in samples if sample is not None])
    except UsageError:
        return None  # too few shapes of requests: the table is left out, and the page says why


def _sample(record: TrialRecord, number: int) -> TtftSample | None:
    call = record.calls[number]
    if call.prompt_tokens is None or call.cached_tokens is None or call.ttft_s is None:
        return None
    return TtftSample(
        cached_tokens=call.cached_tokens,
        uncached_tokens=call.prompt_tokens - call.cached_tokens,
        seconds=call.ttft_s,
        cluster=record.spec.cluster,
    )


def foretold_table(rows: Sequence[Foretold]) -> Table:
    """Measured beside predicted waits."""
    return Table(
        title="Waits foretold from tokens alone",
        columns=(
            "arm",
            "sum of TTFT, s [95 %]",
            "median, s",
            "predicted, s",
            "predicted − median, s",
            "of the median",
        ),
        rows=tuple(
            (
                one.title,
                one.measured.words(".2f"),
                round(one.typical_s, 2),
                round(one.predicted_s, 2),
                round(one.error_s, 2),
                f"{one.error_s / one.typical_s:+.0%}",
            )
            for one in rows
        ),
        note="TTFT = a + b·u + c·u·(k + u/2), u computed and k reused tokens, fitted to the calls of all other arms of "
        "this run (for append-only and its null: without both), so no arm is predicted by what it taught. The fit is "
        "to the typical request (least absolute errors), so it is held against the median over seeds; the mean also "
        "has what other programs of the machine took.",
    )


def foretold_figure(rows: Sequence[Foretold]) -> BarFigure:
    """Two bars an arm."""
    bars: list[Bar] = []
    for one in rows:
        bars.append(Bar.of(one.title, one.measured))
        bars.append(Bar(label="    foretold", value=one.predicted_s))
    return BarFigure(
        name="time-foretold",
        title="Waiting for first tokens, measured and foretold from tokens",
        axis="sum of TTFT over the run's calls, seconds",
        bars=tuple(bars),
        caption="Whiskers: 95 % bootstrap over seeds. Foretold by a model fitted to the calls of all other arms.",
    )


def waits_figure(all_workloads: Sequence[Workload]) -> BarFigure:
    """The waits of every arm."""
    bars = [
        Bar.of(workload.label(arm), waits(workload, arm.name))
        for workload in all_workloads
        for arm in workload.arms
    ]
    return BarFigure(
        name="time-to-first-token",
        title="Waiting for first tokens in one run",
        axis="sum of TTFT over the run's calls, seconds",
        bars=tuple(bars),
        caption="Means over seeds with 95 % bootstrap intervals where there are at least "
        f"{SEEDS_FOR_INTERVAL} seeds.",
    )


def _bare(effect: PairedEffect) -> PairedEffect:
    interval = effect.interval.model_copy(update={"low": None, "high": None})
    return effect.model_copy(update={"interval": interval, "p_value": None, "detectable": None})
