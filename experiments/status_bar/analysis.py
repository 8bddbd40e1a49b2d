"""What the records of the study `status-bar` say; every sentence of it is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Final

import numpy as np

from experiments.framework import (
    Analysis,
    Arm,
    Bar,
    BarFigure,
    Line,
    LineFigure,
    Table,
    TrialRecord,
    by_cluster,
    paired_effect,
)
from experiments.framework.analysis import Cell, arms_that_ran
from experiments.framework.statistics import (
    SEEDS_FOR_INTERVAL,
    Floats,
    Interval,
    PairedEffect,
    bounded,
    holm,
    mean_of_proportions,
    wilson,
)
from experiments.status_bar.arms import BASE, FILLER, NO_BAR, NULL_REBUILD, WRONG

DECISION: Final = "decision"
ACTION: Final = "action"
ASKED: Final = {DECISION: "May it call again?", ACTION: "What does it do next?"}


def analyse(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Analysis:
    """Tables, figures and a conclusion; arms without a record are left out."""
    ran = arms_that_ran(arms, records)
    thinking = any(record.task.startswith("think") for record in records)
    return Analysis(
        conclusion=" ".join(_conclusion(ran, records)),
        tables=(
            *(_choice_table(ran, records, asked) for asked in ASKED),
            _count_table(ran, records),
            _by_calls_table(ran, records),
            _cost_table(ran, records),
            *((_thinking_table(ran, records),) if thinking else ()),
        ),
        figures=tuple(_figures(ran, records)),
    )


def balanced(records: Sequence[TrialRecord], arm: str, asked: str) -> Interval | None:
    """Balanced accuracy: the mean of the shares right where a call is left and where none is.

    Always saying the same gives 0.5. Bounds from the two shares' score intervals, for every scenario is asked once
    an arm; None where one of the two kinds is missing.
    """
    sides = []
    for left in (True, False):
        own = [record for record in _of(records, arm) if record.measures["may_call"] is left]
        if not own:
            return None
        sides.append(wilson(sum(record.measures[f"{asked}_right"] is True for record in own), len(own)))
    return mean_of_proportions(*sides)


def slope(
    records: Sequence[TrialRecord], arm: str, measure: Callable[[TrialRecord], float | None]
) -> Interval | None:
    """Least-squares slope of a measure on N, scenarios resampled; None where N does not vary."""
    points = [
        (float(calls), value)
        for record in _of(records, arm)
        if isinstance(calls := record.measures["calls"], int) and (value := measure(record)) is not None
    ]
    if len({calls for calls, _ in points}) < 2:
        return None
    rows = np.array([(x, y, x * y, x * x) for x, y in points])
    return bounded(rows, _slope)


def absolute_error(record: TrialRecord) -> float | None:
    """How far the count is off; None where the answer had no number."""
    error = record.measures["count_error"]
    return None if not isinstance(error, int) else float(abs(error))


def _slope(means: Floats) -> Floats:
    x, y, xy, xx = means.T
    spread = xx - x * x
    found: Floats = np.divide(xy - x * y, spread, out=np.zeros_like(spread), where=spread > 1e-12)
    return found


def _of(records: Sequence[TrialRecord], arm: str) -> list[TrialRecord]:
    return [record for record in records if record.arm == arm and record.scored]


def _effect(records: Sequence[TrialRecord], arm: str, measure: str) -> PairedEffect | None:
    one, other = by_cluster(records, arm, measure), by_cluster(records, NO_BAR, measure)
    if arm == NO_BAR or len(one.keys() & other.keys()) < SEEDS_FOR_INTERVAL:
        return None
    return paired_effect(one, other, np.random.default_rng(0))


def _effects(
    arms: Sequence[Arm], records: Sequence[TrialRecord], measure: str
) -> dict[str, tuple[PairedEffect, float]]:
    """Every arm against no bar, with p by Holm over the arms; the null arm is the base again and no test."""
    found = {
        arm.name: effect
        for arm in arms
        if arm.name != NULL_REBUILD and (effect := _effect(records, arm.name, measure)) is not None
    }
    adjusted = holm({name: one.p_value for name, one in found.items() if one.p_value is not None})
    return {name: (one, adjusted.get(name, 1.0)) for name, one in found.items()}


def _conclusion(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Iterator[str]:
    names = {arm.name for arm in arms}
    scenarios = len({record.spec.cluster for record in records})
    yield f"{scenarios} scenarios an arm."
    for asked, words in ((DECISION, "Decision"), (ACTION, "Next action")):
        yield from _choice_sentences(arms, records, asked, words)
    if {BASE, NO_BAR} <= names:
        yield from _violations(records)
    if WRONG in names:
        yield _believed(records)
    if {BASE, NO_BAR} <= names:
        yield from _counting(records)


def _choice_sentences(
    arms: Sequence[Arm], records: Sequence[TrialRecord], asked: str, words: str
) -> Iterator[str]:
    titles = {arm.name: arm.title for arm in arms}
    effects = _effects(arms, records, f"{asked}_right")
    if NO_BAR in titles and (none := balanced(records, NO_BAR, asked)) is not None:
        yield f"{words}: balanced accuracy {none.words('.2f')} without a bar{_always(records, NO_BAR, asked)}"
        for name in (BASE, FILLER):
            found = balanced(records, name, asked) if name in titles else None
            if found is not None:
                yield f"– {titles[name].lower()} {found.words('.2f')}{_always(records, name, asked)}"
    if BASE in effects:
        effect, p = effects[BASE]
        if effect.interval.excludes_zero and p < 0.05:
            change = "more" if effect.interval.estimate > 0 else "fewer"
            share = effect.interval.words("+.2f")
            yield f"– with count and verdict {change} answers are right ({share} of all, p {p:.2g} after Holm)."
        else:
            yield (
                f"– no change that stands when all arms are judged together ({effect.interval.words('+.2f')} of all "
                f"answers, p {p:.2g} after Holm; {effect.would_have_found('.2f')})."
            )


def _always(records: Sequence[TrialRecord], arm: str, asked: str) -> str:
    """Words for a model that says the same whatever is asked; empty where it does not."""
    said = {str(record.measures[asked]) for record in _of(records, arm)}
    return f" (always {said.pop()!r})" if len(said) == 1 else ""


def _violations(records: Sequence[TrialRecord]) -> Iterator[str]:
    parts = []
    for name, words in ((NO_BAR, "without a bar"), (BASE, "with it")):
        broken, total = _violated(records, name)
        if total:
            parts.append(f"{broken} of {total} {words}")
    if parts:
        yield f"The limit is broken where none is left in {', '.join(parts)}."


def _violated(records: Sequence[TrialRecord], arm: str) -> tuple[int, int]:
    known = [value for record in _of(records, arm) if isinstance(value := record.measures["violation"], bool)]
    return sum(known), len(known)


def _believed(records: Sequence[TrialRecord]) -> str:
    own = _of(records, WRONG)
    wrong = sum(record.measures["decision_right"] is False for record in own)
    off = sum(
        isinstance(error := record.measures["count_error"], int)
        and error == (1 if record.measures["may_call"] else -1)
        for record in own
    )
    return (
        f"A bar that is wrong by one is followed in {wrong} of {len(own)} decisions and, to the number, in {off} "
        "counts."
    )


def _counting(records: Sequence[TrialRecord]) -> Iterator[str]:
    for name, words in ((NO_BAR, "Without a bar"), (BASE, "With it")):
        own = _of(records, name)
        right = sum(record.measures["count_right"] is True for record in own)
        grows = slope(records, name, absolute_error)
        tail = "" if grows is None else f", its error growing by {grows.words('.2f')} a call"
        yield f"{words} the count is right in {right} of {len(own)}{tail}."


def _choice_table(arms: Sequence[Arm], records: Sequence[TrialRecord], asked: str) -> Table:
    effects = _effects(arms, records, f"{asked}_right")
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        own = _of(records, arm.name)
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


def _share(own: Sequence[TrialRecord], measure: str) -> str:
    if not own:
        return "–"
    right = sum(record.measures[measure] is True for record in own)
    return f"{right}/{len(own)}: {wilson(right, len(own)).words('.2f')}"


def _count_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    effects = _effects(arms, records, "count_right")
    for arm in arms:
        own = _of(records, arm.name)
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


def _by_calls_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    counts = _counts(records)
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        for asked, words in (*((a, a) for a in ASKED), ("count", "count")):
            cells = []
            for calls in counts:
                own = [record for record in _of(records, arm.name) if record.measures["calls"] == calls]
                right = sum(record.measures[f"{asked}_right"] is True for record in own)
                cells.append(f"{right}/{len(own)}" if own else "–")
            rows.append((arm.title, words, *cells))
    return Table(
        title="Right answers by N",
        columns=("arm", "question", *(f"N = {calls}" for calls in counts)),
        rows=tuple(rows),
        note="Half of every cell's scenarios have a call left.",
    )


def _cost_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        calls = [call for record in _of(records, arm.name) for call in record.calls]
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


def _thinking_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        tokens = [
            float(value)
            for record in _of(records, arm.name)
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


def _thinking_tokens(record: TrialRecord) -> float | None:
    value = record.measures["thinking_tokens"]
    return float(value) if isinstance(value, int) else None


def _counts(records: Sequence[TrialRecord]) -> list[int]:
    return sorted({calls for record in records if isinstance(calls := record.measures["calls"], int)})


def _figures(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Iterator[BarFigure | LineFigure]:
    bars = []
    for arm in arms:
        for asked in ASKED:
            found = balanced(records, arm.name, asked)
            if found is not None:
                label = f"{arm.title}: {'decision' if asked == DECISION else 'next action'}"
                bars.append(Bar.of(label, found))
    if bars:
        yield BarFigure(
            name="balanced-accuracy",
            title="Decisions with every kind of bar",
            axis="balanced accuracy (0.5: the same answer always)",
            bars=tuple(bars),
            caption="Mean of the shares right where a call is left and where none is, with 95 % intervals.",
        )
    counts = _counts(records)
    lines = []
    for arm in arms:
        if arm.name == NULL_REBUILD:
            continue
        means = [_mean_error(records, arm.name, calls) for calls in counts]
        if all(mean is not None for mean in means):
            lines.append(Line(label=arm.title, values=tuple(mean for mean in means if mean is not None)))
    if lines and len(counts) > 1:
        yield LineFigure(
            name="counting-error",
            title="How far the count is off",
            axis="calls made (N)",
            value_axis="mean |count − N|",
            places=tuple(map(float, counts)),
            lines=tuple(lines),
            caption="Mean over scenarios of one N.",
        )


def _mean_error(records: Sequence[TrialRecord], arm: str, calls: int) -> float | None:
    errors = [
        error
        for record in _of(records, arm)
        if record.measures["calls"] == calls and (error := absolute_error(record)) is not None
    ]
    return sum(errors) / len(errors) if errors else None
