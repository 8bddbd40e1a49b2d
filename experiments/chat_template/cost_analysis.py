"""What the records of the study `chat-template-cost` say: real turns, one after another, each from a cold cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from experiments.chat_template.tables import drift_table, of_arm
from experiments.framework import Analysis, Arm, Bar, BarFigure, Exclusion, Table, TrialRecord
from experiments.framework.analysis import Cell, arms_that_ran
from experiments.framework.measured import agreement
from experiments.framework.statistics import Interval, bounded, mean_of
from experiments.tool_calling.cost_tables import later_call, ttft
from experiments.tool_calling.names import EXCLUDED
from experiments.tool_calling.tables import share, summed


def analyse_cost(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Analysis:
    """Agreement, tokens and waits by arm; turns of different arms are different turns, so nothing is ranked."""
    asked = [record for record in records if EXCLUDED not in record.measures]
    ran = arms_that_ran(arms, asked)
    left_out = len(records) - len(asked)
    return Analysis(
        conclusion=" ".join(_conclusion(ran, asked)),
        tables=(_table(ran, asked), *drift_table(ran, asked)),
        figures=tuple(_figures(ran, asked)),
        exclusions=(Exclusion(reason="no isolation here for the interpreter", trials=left_out),)
        if left_out
        else (),
    )


def _conclusion(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Iterator[str]:
    yield agreement([call for record in records for call in record.calls])
    whole = [
        arm.title for arm in arms if _later(records, arm) and _kept(records, arm) == _later(records, arm)
    ]
    broken = [arm for arm in arms if _kept(records, arm) < _later(records, arm)]
    if whole:
        yield f"Every later call extends what was stored under: {', '.join(f'“{title}”' for title in whole)}."
    if broken:
        parts = (f"“{arm.title}” {_kept(records, arm)} of {_later(records, arm)}" for arm in broken)
        yield f"Later calls that extend prompt and answer elsewhere: {', '.join(parts)}."


def _later(records: Sequence[TrialRecord], arm: Arm) -> int:
    return summed(of_arm(records, arm.name), "later_calls")


def _kept(records: Sequence[TrialRecord], arm: Arm) -> int:
    return summed(of_arm(records, arm.name), "kept_all")


def _waits(records: Sequence[TrialRecord], arm: Arm) -> Interval | None:
    found = ttft(records, arm.name, later_call)
    return bounded(np.array([[np.mean(own)] for own in found.values()])) if found else None


def _table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        own = of_arm(records, arm.name)
        later = [call for record in own for call in later_call(record.calls)]
        prompt = sum(call.prompt_tokens or 0 for call in later)
        cached = sum(call.cached_tokens or 0 for call in later)
        lost, wait = mean_of(records, arm.name, "lost_tokens"), _waits(records, arm)
        rows.append(
            (
                arm.title,
                len(own),
                share(own, "success"),
                len(later),
                _kept(records, arm),
                cached / prompt if prompt else None,
                None if lost is None else lost.words(".0f"),
                None if wait is None else wait.words(".2f"),
            )
        )
    return Table(
        title="Real turns, alone on the server",
        columns=(
            "arm",
            "turns",
            "right [95 %]",
            "later calls",
            "extend prompt and answer",
            "cached share of later calls",
            "tokens lost a turn [95 %]",
            "TTFT of later calls, s [95 %]",
        ),
        rows=tuple(rows),
        note="Every turn from a cold cache of its own. Arms change what the model says, so their turns differ in "
        "length: read costs beside the share right. The study `chat-template-replay` has the same words in every arm.",
    )


def _figures(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Iterator[BarFigure]:
    waits = {arm.title: _waits(records, arm) for arm in arms}
    bars = tuple(Bar.of(title, wait) for title, wait in waits.items() if wait is not None)
    if bars:
        yield BarFigure(
            name="later-calls",
            title="Waiting for the first token of a later call",
            axis="seconds",
            bars=bars,
            caption="Means over prompts with 95 % bootstrap intervals; the turns of two arms are not the same turns.",
        )
