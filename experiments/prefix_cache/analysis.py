"""What the records of the study `prefix-cache` say: tokens and times per arm beside append-only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.framework import Analysis, Arm, BarFigure, Stack, StackedFigure, Table, TrialRecord
from experiments.framework.measured import agreement
from experiments.prefix_cache.arms import APPEND_ONLY
from experiments.prefix_cache.ceiling import block_size_of, ceilings, must_reach_ceiling
from experiments.prefix_cache.tables import break_table, cost_table, loss_table
from experiments.prefix_cache.times import (
    added_waits,
    foretold,
    foretold_figure,
    foretold_table,
    waits_figure,
)
from experiments.prefix_cache.workload import Workload, parts_of, workloads
from serving.errors import UsageError


def analyse(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Analysis:
    """Tables, figures and a conclusion, every sentence of it computed; arms without a record are left out."""
    found = workloads(arms, records)
    if not found:
        raise UsageError(
            f"No record is of an arm of this study; its arms are {', '.join(arm.name for arm in arms)}."
        )
    return Analysis(
        conclusion=" ".join(_conclusion(found, records)),
        tables=tuple(_tables(found)),
        figures=tuple(_figures(found)),
    )


def _conclusion(found: Sequence[Workload], records: Sequence[TrialRecord]) -> Iterator[str]:
    yield agreement([call for record in records for call in record.calls])
    yield from _at_the_ceiling(records)
    main = found[0]
    reference = main.mean(APPEND_ONLY, "uncached_tokens")
    worst = max(main.arms, key=lambda arm: main.mean(arm.name, "uncached_tokens") or 0.0)
    uncached = main.mean(worst.name, "uncached_tokens")
    best, least = main.share(APPEND_ONLY), main.share(worst.name)
    if best is None or least is None or not reference or not uncached or uncached <= reference:
        return
    yield (
        f"Append-only reuses {best:.0%} of its prompt tokens; the dearest habit here, "
        f"“{worst.title}”, reuses {least:.0%} and makes the server compute "
        f"{uncached / reference:.1f} times as many tokens."
    )
    effect = added_waits(main).get(worst.name)
    if effect is not None and effect.interval.low is not None:
        yield (
            f"It adds {effect.interval.estimate:.1f} s of waiting for first tokens to the run "
            f"(95 % interval {effect.interval.low:.1f} to {effect.interval.high:.1f}, "
            f"{effect.clusters} seeds)."
        )


def _at_the_ceiling(records: Sequence[TrialRecord]) -> Iterator[str]:
    """How often append-only reuses all that it could; runs that did not keep their block size cannot tell."""
    reached = calls = 0
    for record in records:
        size = block_size_of(record) if must_reach_ceiling(record) else None
        bounds = None if size is None else ceilings(record.calls, size)
        for call, bound in zip(record.calls, bounds or (), strict=False):
            calls += 1
            reached += call.cached_tokens == bound
    if calls:
        yield f"Append-only reuses every whole block that it could in {reached} of {calls} calls."


def _tables(found: Sequence[Workload]) -> Iterator[Table]:
    yield cost_table(found)
    yield loss_table(found)
    yield break_table(found)
    if rows := foretold(found[0]):
        yield foretold_table(rows)


def _figures(found: Sequence[Workload]) -> Iterator[StackedFigure | BarFigure]:
    parts = parts_of(found)
    stacks = []
    for workload in found:
        for arm in workload.arms:
            split = workload.split(arm.name)
            stacks.append(
                Stack(
                    label=workload.label(arm),
                    values=tuple(split.get(part, 0.0) for part in parts),
                    mark=workload.ceiling(arm.name),
                )
            )
    marked = any(stack.mark is not None for stack in stacks)
    yield StackedFigure(
        name="tokens-by-cause",
        title="Where the prompt tokens of one run went",
        axis="prompt tokens of a replayed run (mean over seeds)",
        parts=parts,
        stacks=tuple(stacks),
        mark="ceiling of these lengths" if marked else "",
        caption="The first part costs almost nothing; all others are computed. They add up to the prompt tokens."
        + (
            " The black mark is the ceiling of the same lengths: where the first part ends there, nothing was lost."
            if marked
            else ""
        ),
    )
    yield waits_figure(found)
    if rows := foretold(found[0]):
        yield foretold_figure(rows)
