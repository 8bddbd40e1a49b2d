"""The tables of the study `status-bar`."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from experiments.framework import Arm, Table, TrialRecord
from experiments.framework.analysis import Cell
from experiments.framework.statistics import bounded, wilson
from experiments.status_bar.measures import (
    ASKED,
    absolute_error,
    balanced,
    call_counts,
    effects_of,
    of_arm,
    slope,
)


def choice_table(arms: Sequence[Arm], records: Sequence[TrialRecord], asked: str) -> Table:
    """How often one of the two choices (`asked`) is right under each arm."""
    effects = effects_of(arms, records, f"{asked}_right")
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        own = of_arm(records, arm.name)
        left = [record for record in own if record.measures["may_call"] is True]
        none = [record for record in own if record.measures["may_call"] is False]
        accuracy = balanced(records, arm.name, asked)
        effect, p = effects.get(arm.name, (None, None))
        rows.append(
            (
                arm.title,
                len(own),
                "–" if accuracy is None else accuracy.words(".2f"),
                _share(left, f"{asked}_right"),
                _share(none, f"{asked}_right"),
                "" if effect is None else effect.interval.words("+.2f"),
                "" if p is None else p,
                "" if effect is None or effect.detectable is None else effect.detectable,
            )
        )
    return Table(
        title=ASKED[asked],
        columns=(
            "arm",
            "n",
            "balanced accuracy [95 %]",
            "right where a call is left [Wilson]",
            "right where none is [Wilson]",
            "all answers, against no bar",
            "p (Holm)",
            "detectable",
        ),
        rows=tuple(rows),
        note="Balanced accuracy is 0.5 for a model that always says the same. Differences are paired by scenario, p is "
        "a sign-flip test. Where none is left, an answer that is not right breaks the limit or names no choice.",
    )


def count_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    """How often the number of calls is right, and how far it is off."""
    rows: list[tuple[Cell, ...]] = []
    effects = effects_of(arms, records, "count_right")
    for arm in arms:
        own = of_arm(records, arm.name)
        errors = [error for record in own if (error := absolute_error(record)) is not None]
        mean = bounded(np.array(errors)[:, None]) if errors else None
        grows = slope(records, arm.name, absolute_error)
        effect, p = effects.get(arm.name, (None, None))
        rows.append(
            (
                arm.title,
                _share(own, "count_right"),
                len(own) - len(errors),
                "–" if mean is None else mean.words(".2f"),
                "–" if grows is None else grows.words("+.2f"),
                "" if effect is None else effect.interval.words("+.2f"),
                "" if p is None else p,
                "" if effect is None or effect.detectable is None else effect.detectable,
            )
        )
    return Table(
        title="How often has it called?",
        columns=(
            "arm",
            "right [Wilson]",
            "no number",
            "mean distance [95 %]",
            "distance, slope on N",
            "right, against no bar",
            "p (Holm)",
            "detectable",
        ),
        rows=tuple(rows),
        note="Distance: |count − N|. The slope is in calls of error for each call made.",
    )


def by_calls_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    """Right answers of every arm by the number of calls made."""
    counts = call_counts(records)
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        for asked, words in (*((a, a) for a in ASKED), ("count", "count")):
            cells = []
            for calls in counts:
                own = [record for record in of_arm(records, arm.name) if record.measures["calls"] == calls]
                right = sum(record.measures[f"{asked}_right"] is True for record in own)
                cells.append(f"{right}/{len(own)}" if own else "–")
            rows.append((arm.title, words, *cells))
    return Table(
        title="Right answers by N",
        columns=("arm", "question", *(f"N = {calls}" for calls in counts)),
        rows=tuple(rows),
        note="Half of every cell's scenarios have a call left.",
    )


def cost_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    """What a question cost in this run; arms share a cache here."""
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        calls = [call for record in of_arm(records, arm.name) for call in record.calls]
        fresh = [
            call.prompt_tokens - call.cached_tokens
            for call in calls
            if call.prompt_tokens is not None and call.cached_tokens is not None
        ]
        waits = [call.ttft_s for call in calls if call.ttft_s is not None]
        agreed = sum(call.predicted_tokens == call.cached_tokens for call in calls)
        rows.append(
            (
                arm.title,
                len(calls),
                median(fresh) if fresh else None,
                round(median(waits), 2) if waits else None,
                f"{agreed}/{len(calls)}",
            )
        )
    return Table(
        title="What a question costs here",
        columns=("arm", "calls", "computed tokens, median", "TTFT, median s", "reuse as predicted"),
        rows=tuple(rows),
        note="All arms share one cache, so the first arm to ask about a log pays for it: a cost of this run, not of "
        "the arm. `status-bar-cost` measures the arms' own.",
    )


def thinking_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    """How much every arm lets the model write before it answers, and how that grows."""
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        tokens = [
            float(value)
            for record in of_arm(records, arm.name)
            if isinstance(value := record.measures["thinking_tokens"], int)
        ]
        grows = slope(records, arm.name, _thinking_tokens)
        rows.append(
            (
                arm.title,
                "–" if not tokens else bounded(np.array(tokens)[:, None]).words(".0f"),
                "–" if grows is None else grows.words("+.1f"),
            )
        )
    return Table(
        title="Visible chain of thought",
        columns=("arm", "tokens before three answers [95 %]", "slope on N"),
        rows=tuple(rows),
        note="What the model writes before it is asked for the answer alone; no reasoning in the API's sense.",
    )


def _share(own: Sequence[TrialRecord], measure: str) -> str:
    if not own:
        return "–"
    right = sum(record.measures[measure] is True for record in own)
    return f"{right}/{len(own)}: {wilson(right, len(own)).words('.2f')}"


def _thinking_tokens(record: TrialRecord) -> float | None:
    value = record.measures["thinking_tokens"]
    return float(value) if isinstance(value, int) else None
