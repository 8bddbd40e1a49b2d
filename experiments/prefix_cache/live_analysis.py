"""What the records of `prefix-cache-live` say: who keeps the tasks, and what it costs those who do.

The rule that keeps a cheap failure from winning is code: `standing` decides from solved tasks alone whether an arm
is ranked, and a rank compares only tasks that the arm and append-only both solved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from experiments.framework import (
    Analysis,
    Arm,
    Bar,
    BarFigure,
    Table,
    TrialRecord,
    by_cluster,
    paired_effect,
)
from experiments.framework.analysis import Cell
from experiments.framework.arms import NULL_REBUILD
from experiments.framework.measured import agreement
from experiments.framework.proportions import PairedProportion, paired_proportion
from experiments.framework.statistics import SEEDS_FOR_INTERVAL, PairedEffect, cluster_means, holm, wilson
from experiments.framework.trials import total
from experiments.prefix_cache.arms import APPEND_ONLY
from serving.errors import UsageError

_SAME: Final = (APPEND_ONLY, NULL_REBUILD)
"""The base and the same again: what differs between them is noise, so neither is compared with the base."""


@dataclass(frozen=True)
class Standing:
    """An arm beside append-only, task by task; append-only is the first of each pair."""

    arm: Arm
    solved: PairedProportion
    """Of the tasks that both arms tried; a task with repeats is solved when all of them were."""
    both: frozenset[str]
    """Clusters that both solved: the only ones in which a cost means the same work."""

    @property
    def loses(self) -> bool:
        """Whether this arm solves fewer tasks than append-only."""
        return self.solved.second < self.solved.first

    @property
    def ranked(self) -> bool:
        """Whether this arm may be ranked by cost: it keeps the tasks, and both solved one in which to compare it."""
        return bool(self.both) and not self.loses


def standing(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Iterator[Standing]:
    """Hold each arm's solved tasks against append-only's; an arm that shares no task with it is left out."""
    base = by_cluster(records, APPEND_ONLY, "success")
    for arm in arms:
        mine = by_cluster(records, arm.name, "success")
        solved = paired_proportion(base, mine)
        if solved is not None:
            both = (task for task in base.keys() & mine.keys() if all(base[task]) and all(mine[task]))
            yield Standing(arm=arm, solved=solved, both=frozenset(both))


def ranking(standings: Sequence[Standing], records: Sequence[TrialRecord]) -> tuple[Ranked, ...]:
    """The arms that keep their tasks, cheapest first, by computed tokens over append-only's on common solved tasks.

    No arm that solves fewer tasks than append-only is in it, whatever it cost.
    """
    costs = (_cost(one, records) for one in standings if one.ranked)
    known = [one for one in costs if one is not None]
    return tuple(sorted(known, key=lambda one: (one.ratio, one.standing.arm.name)))


@dataclass(frozen=True)
class Ranked:
    """What an arm computes on tasks that it and append-only both solved."""

    standing: Standing
    computed: float
    base_computed: float
    """Append-only's, on the same tasks; both are means over tasks."""
    added: PairedEffect

    @property
    def ratio(self) -> float:
        """Computed tokens over append-only's."""
        return self.computed / self.base_computed


def analyse(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Analysis:
    """Success, cost of what succeeds, and the rest apart; `UsageError` without append-only."""
    standings = tuple(standing(arms, records))
    if APPEND_ONLY not in {one.arm.name for one in standings}:
        raise UsageError(f"Every arm is held against {APPEND_ONLY}, and no record is of it: run it too.")
    ranked = ranking(standings, records)
    return Analysis(
        conclusion=" ".join(_conclusion(standings, ranked, records)),
        tables=tuple(_tables(standings, ranked, records)),
        figures=tuple(_figures(standings, ranked)),
    )


def _cost(one: Standing, records: Sequence[TrialRecord]) -> Ranked | None:
    mine, base = (_on(one.both, records, arm, "uncached_tokens") for arm in (one.arm.name, APPEND_ONLY))
    if not mine or mine.keys() != base.keys():
        return None  # a count is unknown: an arm without a cost has no rank
    effect = paired_effect(mine, base, np.random.default_rng(0))
    means = [float(cluster_means(side).mean()) for side in (mine, base)]
    return Ranked(one, means[0], means[1], effect) if means[1] else None


def _on(
    tasks: frozenset[str], records: Sequence[TrialRecord], arm: str, measure: str
) -> Mapping[str, list[float]]:
    return {task: values for task, values in by_cluster(records, arm, measure).items() if task in tasks}


def _conclusion(
    standings: Sequence[Standing], ranked: Sequence[Ranked], records: Sequence[TrialRecord]
) -> Iterator[str]:
    yield agreement([call for record in records for call in record.calls])
    base = next(one for one in standings if one.arm.name == APPEND_ONLY)
    yield f"Append-only solves {base.solved.second} of {base.solved.pairs} tasks."
    if not base.solved.second:
        yield "So no arm is ranked by cost: what it would cost to solve a task is not known."
        return
    others = [one for one in ranked if one.standing.arm.name not in _SAME]
    if others:
        tried = sum(one.arm.name not in _SAME for one in standings)
        ends = others if len(others) == 1 else (others[0], others[-1])
        costs = ", ".join(
            f"“{one.standing.arm.title}” {one.ratio:.2f} times (tasks: {len(one.standing.both)})"
            for one in ends
        )
        yield (
            f"{len(others)} of {tried} other arms solve at least as many. Cheapest and dearest of them, in the "
            f"tokens of append-only on the tasks that both solve: {costs}."
        )
    for why, unranked in (
        ("they solve fewer tasks", [one for one in standings if one.loses]),
        (
            "none of their tasks was solved by both",
            [one for one in standings if not one.loses and not one.both],
        ),
    ):
        if unranked:
            named = ", ".join(f"“{one.arm.title}” ({one.solved.second})" for one in unranked)
            yield f"Not ranked, for {why}: {named}."


def _tables(
    standings: Sequence[Standing], ranked: Sequence[Ranked], records: Sequence[TrialRecord]
) -> Iterator[Table]:
    yield _success_table(standings, records)
    yield _ranking_table(ranked, records)
    if unranked := [one for one in standings if not one.ranked]:
        yield _apart_table(unranked, records)


def _success_table(standings: Sequence[Standing], records: Sequence[TrialRecord]) -> Table:
    adjusted = holm({one.arm.name: one.solved.p_value for one in standings if one.arm.name not in _SAME})
    rows: list[tuple[Cell, ...]] = []
    for one in standings:
        is_base = one.arm.name == APPEND_ONLY
        rows.append(
            (
                one.arm.title,
                f"{one.solved.second} of {one.solved.pairs}",
                wilson(one.solved.second, one.solved.pairs).words(".2f"),
                "" if is_base else one.solved.only_first,
                "" if is_base else one.solved.only_second,
                "" if is_base else one.solved.change.words("+.2f"),
                adjusted.get(one.arm.name, ""),
                one.solved.detectable(comparisons=len(adjusted)) if one.arm.name in adjusted else "",
                _mean(records, one.arm.name, "facts_found"),
                _mean(records, one.arm.name, "iterations"),
                _rate(records, one.arm.name, "repeated_calls", "tool_calls"),
                "yes" if one.ranked else "no",
            )
        )
    return Table(
        title="Who keeps the tasks",
        columns=(
            "arm",
            "solved",
            "share [95 %]",
            "lost",
            "won",
            "difference [95 %]",
            "p (Holm)",
            "detectable",
            "facts found",
            "model calls",
            "repeated calls",
            "ranked",
        ),
        rows=tuple(rows),
        note="Share: Wilson's interval. Lost and won: tasks that this arm and append-only decided differently; the "
        "change has Newcombe's interval, p is McNemar's exact test, Holm over arms (the null arm is the noise, and "
        "not tested). Detectable: the smallest true change that this run would have found 8 times in 10, none where "
        "not even a change of every task would have been found; a smaller loss may be there unseen. Repeated calls: "
        "tool calls made before with the same arguments, of all. Ranked: at least as many solved as append-only, and "
        "one of them by both.",
    )


def _ranking_table(ranked: Sequence[Ranked], records: Sequence[TrialRecord]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for one in ranked:
        arm = one.standing.arm.name
        effect = one.added
        enough = effect.clusters >= SEEDS_FOR_INTERVAL and arm != APPEND_ONLY
        rows.append(
            (
                one.standing.arm.title,
                len(one.standing.both),
                _share(records, arm, one.standing.both),
                one.computed,
                one.ratio,
                effect.interval.words("+.0f") if enough else "",
                _mean_on(one.standing.both, records, arm, "ttft_s"),
                _mean_on(one.standing.both, records, arm, "latency_s"),
            )
        )
    return Table(
        title="What keeping the tasks costs, cheapest first",
        columns=(
            "arm",
            "tasks both solve",
            "cached share",
            "tokens computed",
            "× append-only",
            "added tokens [95 %]",
            "sum of TTFT, s",
            "total time, s",
        ),
        rows=tuple(rows),
        note="Means over the tasks that the arm and append-only both solved; × compares the same tasks. Sequential "
        "calls, a salt a trial.",
    )


def _apart_table(unranked: Sequence[Standing], records: Sequence[TrialRecord]) -> Table:
    """In the study's order: there is no rank among those who did not do the work."""
    rows: list[tuple[Cell, ...]] = []
    for one in unranked:
        arm = one.arm.name
        own = frozenset(by_cluster(records, arm, "success"))
        rows.append(
            (
                one.arm.title,
                f"{one.solved.second} of {one.solved.pairs}",
                _share(records, arm, own),
                _mean(records, arm, "uncached_tokens"),
                _mean(records, arm, "iterations"),
                _rate(records, arm, "repeated_calls", "tool_calls"),
                _endings(records, arm),
            )
        )
    return Table(
        title="Apart: arms without a rank",
        columns=(
            "arm",
            "solved",
            "cached share",
            "tokens computed",
            "model calls",
            "repeated calls",
            "how it ended",
        ),
        rows=tuple(rows),
        note="Over all their tasks, solved or not. Few tokens here are no saving: the work was not done.",
    )


def _figures(standings: Sequence[Standing], ranked: Sequence[Ranked]) -> Iterator[BarFigure]:
    bars = [Bar.of(one.arm.title, wilson(one.solved.second, one.solved.pairs)) for one in standings]
    yield BarFigure(
        name="tasks-solved",
        title="Tasks solved under each way of building the context",
        axis="share of tasks solved",
        bars=tuple(bars),
        caption="Whiskers: Wilson's 95 % interval.",
    )
    if ranked:
        yield BarFigure(
            name="cost-of-solved-tasks",
            title="Tokens computed for tasks that are solved",
            axis="× append-only, on the tasks that both solve",
            bars=tuple(Bar(label=one.standing.arm.title, value=one.ratio) for one in ranked),
            caption="Only arms that solve at least as many tasks as append-only.",
        )


def _mean(records: Sequence[TrialRecord], arm: str, measure: str) -> float | None:
    return _mean_on(frozenset(by_cluster(records, arm, measure)), records, arm, measure)


def _mean_on(tasks: frozenset[str], records: Sequence[TrialRecord], arm: str, measure: str) -> float | None:
    found = _on(tasks, records, arm, measure)
    return float(cluster_means(found).mean()) if found else None


def _share(records: Sequence[TrialRecord], arm: str, tasks: frozenset[str]) -> float | None:
    own = [
        call
        for record in records
        if record.arm == arm and record.spec.cluster in tasks
        for call in record.calls
    ]
    prompts, cached = total(call.prompt_tokens for call in own), total(call.cached_tokens for call in own)
    return cached / prompts if prompts and cached is not None else None


def _rate(records: Sequence[TrialRecord], arm: str, part: str, whole: str) -> float | None:
    sums = [
        sum(value for values in by_cluster(records, arm, measure).values() for value in values)
        for measure in (part, whole)
    ]
    return sums[0] / sums[1] if sums[1] else None


def _endings(records: Sequence[TrialRecord], arm: str) -> str:
    own = [record for record in records if record.arm == arm and record.scored]
    solved = sum(record.measures.get("success") is True for record in own)
    gave_up = sum(record.measures.get("gave_up") is not None for record in own)
    refused = sum("gave_up" not in record.measures for record in own)
    wrong = len(own) - solved - gave_up - refused
    return f"{solved} solved, {wrong} answered wrong, {gave_up} without an answer, {refused} refused by the server"
