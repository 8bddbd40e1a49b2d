"""Arms beside each other, prompt by prompt: what requiring a call changes, and how much is noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from experiments.framework import Table, TrialRecord, by_cluster
from experiments.framework.analysis import Cell
from experiments.framework.statistics import (
    Interval,
    change_of_proportion,
    detectable_proportion,
    holm,
    mcnemar_exact,
)
from experiments.tool_calling.names import AUTO, NATIVE_ONLY, REQUIRED
from experiments.workloads.tool_prompts import PromptClass

READINGS: Final[Mapping[str, str]] = {
    "success": "every form",
    f"{NATIVE_ONLY}success": "the template's alone",
}


@dataclass(frozen=True)
class Compared:
    """Required against left to the model, one pair a prompt."""

    scope: PromptClass | None
    """None: all classes in which a call is needed."""
    reading: str
    """The measure: which forms the harness reads."""
    pairs: int
    only_auto: int
    only_required: int
    effect: Interval
    """Share right when required, minus share right when not."""
    p_value: float
    adjusted: float
    """After Holm, over all rows of the table."""
    detectable: float | None


def compare(records: Sequence[TrialRecord]) -> Iterator[Compared]:
    """Every class and all together, under both readings; nothing where one of the two arms is missing."""
    found: dict[str, Compared] = {}
    for reading in READINGS:
        for scope in (None, *PromptClass):
            one = _compared(records, scope, reading)
            if one is not None:
                found[f"{scope}/{reading}"] = one
    adjusted = holm({name: one.p_value for name, one in found.items()})
    for name, one in found.items():
        yield replace(one, adjusted=adjusted[name])


def compare_table(compared: Sequence[Compared]) -> tuple[Table, ...]:
    """One table, or none where nothing was compared."""
    if not compared:
        return ()
    rows: list[tuple[Cell, ...]] = [
        (
            "all that need a call" if one.scope is None else one.scope.value,
            READINGS[one.reading],
            one.pairs,
            one.only_auto,
            one.only_required,
            one.effect.words("+.2f"),
            one.p_value,
            one.adjusted,
            one.detectable,
        )
        for one in compared
    ]
    return (
        Table(
            title="First call required, against left to the model",
            columns=(
                "class",
                "forms that are read",
                "prompts",
                "right only when left",
                "right only when required",
                "change of the share right [95 %]",
                "p (McNemar, exact)",
                "p (Holm)",
                "detectable",
            ),
            rows=tuple(rows),
            note="One pair a prompt; intervals by Newcombe; Holm over the rows of this table; detectable is the "
            "smallest true change that this run would have found 8 times in 10.",
        ),
    )


def _compared(records: Sequence[TrialRecord], scope: PromptClass | None, reading: str) -> Compared | None:
    own = [record for record in records if scope is None or record.task == scope.value]
    auto, required = by_cluster(own, AUTO, reading), by_cluster(own, REQUIRED, reading)
    both = sorted(auto.keys() & required.keys())
    if not both:
        return None
    pairs = [(auto[name][0], required[name][0]) for name in both]  # a prompt is asked once an arm
    only_auto, only_required = pairs.count((1.0, 0.0)), pairs.count((0.0, 1.0))
    p_value = mcnemar_exact(only_auto, only_required)
    return Compared(
        scope=scope,
        reading=reading,
        pairs=len(both),
        only_auto=only_auto,
        only_required=only_required,
        effect=change_of_proportion(
            pairs.count((1.0, 1.0)), only_auto, only_required, pairs.count((0.0, 0.0))
        ),
        p_value=p_value,
        adjusted=p_value,
        detectable=detectable_proportion([right - left for left, right in pairs]),
    )
