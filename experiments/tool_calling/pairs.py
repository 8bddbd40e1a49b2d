"""Arms beside each other, prompt by prompt: what requiring a call changes, and how much is noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from experiments.framework import Table, TrialRecord, by_cluster
from experiments.framework.analysis import Cell
from experiments.framework.proportions import PairedProportion, paired_proportion
from experiments.framework.statistics import holm
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
    right: PairedProportion
    """Left to the model first, required second."""
    adjusted: float
    """p after Holm, over all rows of the table."""
    detectable: float | None


def compare(records: Sequence[TrialRecord]) -> tuple[Compared, ...]:
    """Every class and all together, under both readings; nothing where one of the two arms is missing."""
    paired = {
        (reading, scope): paired_proportion(
            *(by_cluster(_of(records, scope), arm, reading) for arm in (AUTO, REQUIRED))
        )
        for reading in READINGS
        for scope in (None, *PromptClass)
    }
    rows = {key: right for key, right in paired.items() if right is not None}
    adjusted = holm({key: right.p_value for key, right in rows.items()})
    return tuple(
        Compared(
            scope=scope,
            reading=reading,
            right=right,
            adjusted=adjusted[reading, scope],
            detectable=right.detectable(comparisons=len(rows)),
        )
        for (reading, scope), right in rows.items()
    )


def compare_table(compared: Sequence[Compared]) -> tuple[Table, ...]:
    """One table, or none where nothing was compared."""
    if not compared:
        return ()
    rows: list[tuple[Cell, ...]] = [
        (
            "all that need a call" if one.scope is None else one.scope.value,
            READINGS[one.reading],
            one.right.pairs,
            one.right.only_first,
            one.right.only_second,
            one.right.change.words("+.2f"),
            one.right.p_value,
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
            "smallest true change that this run would have found 8 times in 10, as one of the table's rows.",
        ),
    )


def _of(records: Sequence[TrialRecord], scope: PromptClass | None) -> list[TrialRecord]:
    return [record for record in records if scope is None or record.task == scope.value]
