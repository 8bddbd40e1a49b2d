"""What the records of the study `tool-calling` say; every sentence is computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from experiments.agent.callform import CallForm
from experiments.framework import Analysis, Arm, Bar, BarFigure, Exclusion, Stack, StackedFigure, TrialRecord
from experiments.framework.analysis import arms_that_ran
from experiments.framework.arms import NULL_REBUILD
from experiments.framework.statistics import Interval, judged_alike, wilson
from experiments.tool_calling.names import AUTO, EXCLUDED
from experiments.tool_calling.pairs import Compared, compare, compare_table
from experiments.tool_calling.tables import (
    FORMS,
    by_class_table,
    by_form_table,
    count,
    form_counts,
    forms_table,
    percent,
    running_table,
    summed,
)
from experiments.workloads.tool_prompts import PromptClass


def analyse(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Analysis:
    """Tables, figures and a conclusion; arms without a record are left out, prompts not asked are exclusions."""
    counted = [record for record in records if EXCLUDED not in record.measures]
    ran = arms_that_ran(arms, counted)
    compared = compare(counted)
    left_out = Counter(str(record.measures[EXCLUDED]) for record in records if EXCLUDED in record.measures)
    return Analysis(
        conclusion=" ".join(_conclusion(counted, compared)),
        tables=(
            by_class_table(ran, counted),
            forms_table(ran, counted),
            by_form_table(ran, counted),
            *compare_table(compared),
            running_table(ran, counted),
        ),
        figures=tuple(_figures(ran, counted)),
        exclusions=tuple(Exclusion(reason=reason, trials=trials) for reason, trials in left_out.items()),
    )


def _conclusion(records: Sequence[TrialRecord], compared: Sequence[Compared]) -> Iterator[str]:
    calls = summed(records, "model_calls")
    yield f"The server read the rendered ids in {summed(records, 'ids_equal')} of {calls} calls."
    own = [record for record in records if record.arm == AUTO]
    if own:
        yield from _left_to_choose(own)
    for one in compared:
        if one.scope is None:
            yield _required(one)
    agreed, pairs = judged_alike(records, AUTO, NULL_REBUILD)
    if pairs:
        yield f"The same request built anew was judged the same in {agreed} of {pairs} prompts."


def _left_to_choose(own: Sequence[TrialRecord]) -> Iterator[str]:
    right, total = count(own, "success")
    yield (
        f"Left to choose, the model makes exactly the calls that are needed and stops in {right} of {total} prompts "
        f"({percent(wilson(right, total))})" + "".join(_by_class(own)) + "."
    )
    forms = form_counts(own)
    made = sum(forms.values())
    if made:
        parts = ", ".join(f"{forms[form]} {form.value}" for form in FORMS)
        native, _ = count(own, "native_success")
        yield (
            f"Of its {made} calls and attempts {parts}; a harness that reads the template's form alone would have got "
            f"{native} of {total} prompts right."
        )


def _by_class(own: Sequence[TrialRecord]) -> Iterator[str]:
    parts = []
    for kind in PromptClass:
        right, total = count([record for record in own if record.task == kind.value], "success")
        if total:
            parts.append(f"{kind.value} {right} of {total}")
    if len(parts) > 1:
        yield f": {', '.join(parts)}"


def _required(one: Compared) -> str:
    """What requiring the first call does to the share right, or what would have been seen if it did something."""
    effect = one.right.change
    change, low, high = (_points(value) for value in (effect.estimate, effect.low, effect.high))
    interval = "" if low is None or high is None else f" [{low}, {high}]"
    reading = "with every form read" if one.reading == "success" else "with the template's form alone read"
    if one.adjusted < 0.05:
        more = "raises" if effect.estimate > 0 else "lowers"
        return (
            f"Requiring a call in the first message {more} the share right by {change} points{interval} {reading} "
            f"(n {one.right.pairs}, McNemar p {one.adjusted:.2g} after Holm)."
        )
    found = "" if one.detectable is None else f"; the run would have found {_points(one.detectable)}"
    return (
        f"Requiring a call in the first message changes the share right by {change} points{interval} {reading}, "
        f"which is no more than chance (n {one.right.pairs}, McNemar p {one.adjusted:.2g} after Holm{found})."
    )


def _points(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:+.0f}".replace("+0", "0").replace("-0", "0")


def _figures(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Iterator[BarFigure | StackedFigure]:
    bars, stacks = [], []
    for kind in PromptClass:
        for arm in arms:
            own = [record for record in records if record.task == kind.value and record.arm == arm.name]
            right, total = count(own, "success")
            if not total or arm.name == NULL_REBUILD:
                continue
            share: Interval = wilson(right, total)
            label = f"{kind.value}: {arm.title.lower()}"
            bars.append(Bar.of(label, share))
            forms = form_counts(own)
            if sum(forms.values()):
                stacks.append(Stack(label=label, values=tuple(float(forms[form]) for form in FORMS)))
    if bars:
        yield BarFigure(
            name="right-turns",
            title="Exactly the calls that are needed, and then an answer",
            axis="share of prompts",
            bars=tuple(bars),
            caption="With 95 % Wilson intervals; one turn a prompt.",
        )
    if stacks:
        yield StackedFigure(
            name="call-forms",
            title="How the calls were written",
            axis="calls and attempts",
            parts=tuple(_FORM_WORDS[form] for form in FORMS),
            stacks=tuple(stacks),
            caption="A harness that knows the template's form alone reads the first part; the lab's loop reads the "
            "first three.",
        )


_FORM_WORDS = {
    CallForm.NATIVE: "native: the template's own form",
    CallForm.FENCED: "JSON between code fences",
    CallForm.BARE: "bare JSON",
    CallForm.MALFORMED: "cannot be read",
}
