"""What the records of the study `status-bar` say; every sentence of it is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.framework import Analysis, Arm, Bar, BarFigure, Line, LineFigure, TrialRecord
from experiments.framework.analysis import arms_that_ran
from experiments.framework.arms import NULL_REBUILD
from experiments.status_bar.arms import BASE, FILLER, NO_BAR, WRONG
from experiments.status_bar.measures import (
    ACTION,
    ASKED,
    DECISION,
    absolute_error,
    balanced,
    call_counts,
    effects_of,
    of_arm,
    slope,
)
from experiments.status_bar.tables import (
    by_calls_table,
    choice_table,
    cost_table,
    count_table,
    thinking_table,
)


def analyse(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Analysis:
    """Tables, figures and a conclusion; arms without a record are left out."""
    ran = arms_that_ran(arms, records)
    thinking = any(record.task.startswith("think") for record in records)
    return Analysis(
        conclusion=" ".join(_conclusion(ran, records)),
        tables=(
            *(choice_table(ran, records, asked) for asked in ASKED),
            count_table(ran, records),
            by_calls_table(ran, records),
            cost_table(ran, records),
            *((thinking_table(ran, records),) if thinking else ()),
        ),
        figures=tuple(_figures(ran, records)),
    )


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
    effects = effects_of(arms, records, f"{asked}_right")
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
    said = {str(record.measures[asked]) for record in of_arm(records, arm)}
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
    known = [
        value for record in of_arm(records, arm) if isinstance(value := record.measures["violation"], bool)
    ]
    return sum(known), len(known)


def _believed(records: Sequence[TrialRecord]) -> str:
    own = of_arm(records, WRONG)
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
        own = of_arm(records, name)
        right = sum(record.measures["count_right"] is True for record in own)
        grows = slope(records, name, absolute_error)
        tail = "" if grows is None else f", its error growing by {grows.words('.2f')} a call"
        yield f"{words} the count is right in {right} of {len(own)}{tail}."


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
    counts = call_counts(records)
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
        for record in of_arm(records, arm)
        if record.measures["calls"] == calls and (error := absolute_error(record)) is not None
    ]
    return sum(errors) / len(errors) if errors else None
