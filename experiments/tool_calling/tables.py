"""Counts and tables of the study `tool-calling`: one row a class and arm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from experiments.agent.callform import CallForm
from experiments.framework import Arm, Table, TrialRecord
from experiments.framework.analysis import Cell
from experiments.framework.statistics import Interval, wilson
from experiments.tool_calling.names import NATIVE_ONLY
from experiments.workloads.tool_prompts import PromptClass

FORMS: Final = (CallForm.NATIVE, CallForm.FENCED, CallForm.BARE, CallForm.MALFORMED)


def count(records: Sequence[TrialRecord], measure: str) -> tuple[int, int]:
    """How many trials have a yes for a measure, of how many that have an answer."""
    known = [record.measures[measure] for record in records if record.measures.get(measure) is not None]
    return sum(value is True for value in known), len(known)


def summed(records: Sequence[TrialRecord], measure: str) -> int:
    """The sum of a counted measure; what is not known counts nothing."""
    values = [record.measures.get(measure) for record in records]
    return sum(value for value in values if isinstance(value, int))


def form_counts(records: Sequence[TrialRecord]) -> Counter[CallForm]:
    """Calls, and messages that could not be read, by their form."""
    return Counter({form: summed(records, f"form_{form}") for form in FORMS})


def percent(interval: Interval) -> str:
    """`30 %, 18 to 45`."""
    if interval.low is None or interval.high is None:
        return f"{100 * interval.estimate:.0f} %"
    return f"{100 * interval.estimate:.0f} %, 95 % interval {100 * interval.low:.0f} to {100 * interval.high:.0f}"


def by_class_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    """How often turns are right, and what goes wrong."""
    return Table(
        title="Right turns by class and tool choice",
        columns=(
            "class",
            "arm",
            "prompts",
            "right [95 %]",
            "right, the template's form alone [95 %]",
            "exactly the calls [95 %]",
            "right stop [95 %]",
            "calls in one message [95 %]",
            "needed calls found",
            "wrong calls",
            "gave up",
            "answers cut off",
        ),
        rows=tuple(
            (
                kind.value,
                arm.title,
                len(own),
                share(own, "success"),
                share(own, f"{NATIVE_ONLY}success"),
                share(own, "exact"),
                share(own, "right_stop"),
                share(own, "together"),
                f"{summed(own, 'found')} of {summed(own, 'expected_calls')}",
                summed(own, "wrong_calls"),
                sum(record.measures.get("gave_up") is not None for record in own),
                summed(own, "answers_cut"),
            )
            for kind, arm, own in _cells(arms, records)
        ),
        note="Right: exactly the needed calls by name and arguments, in order where one needs another's result, and "
        "then an answer in words. Shares with Wilson intervals. The second share is of a harness that knows no "
        "form but the template's, where JSON in the text ends the turn.",
    )


def forms_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    """How the calls were written."""
    rows: list[tuple[Cell, ...]] = []
    for kind, arm, own in _cells(arms, records):
        forms = form_counts(own)
        made = sum(forms.values())
        native = _interval(wilson(forms[CallForm.NATIVE], made)) if made else None
        rows.append((kind.value, arm.title, made, *(forms[form] for form in FORMS), native))
    return Table(
        title="Form of the calls",
        columns=("class", "arm", "calls", *(form.value for form in FORMS), "native [95 %]"),
        rows=tuple(rows),
        note="Native: the template's tags, or what the server's parser made of them; bare: JSON without fences that "
        "the text ends with; malformed: an attempt that cannot be read, counted once a message. Intervals take calls "
        "as independent, which those of one turn are not.",
    )


def by_form_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    """Whether turns that begin in one form go better than others."""
    rows: list[tuple[Cell, ...]] = []
    for kind, arm, own in _cells(arms, records):
        for form in (*FORMS, CallForm.NONE):
            begun = [record for record in own if record.measures.get("first_form") == form.value]
            if begun:
                rows.append(
                    (
                        kind.value,
                        arm.title,
                        form.value,
                        len(begun),
                        share(begun, "success"),
                        share(begun, "exact"),
                        share(begun, "right_stop"),
                    )
                )
    return Table(
        title="Right turns by the form of the first message",
        columns=("class", "arm", "first form", "prompts", "right [95 %]", "exactly the calls", "right stop"),
        rows=tuple(rows),
        note="The model chooses the form, so this compares prompts, not forms. None: the first message called "
        "nothing.",
    )


def running_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    """How the loop ran the calls, and what was written beside them."""
    return Table(
        title="How the calls ran",
        columns=(
            "class",
            "arm",
            "model calls",
            "ids equal the server's",
            "tools run",
            "begun while the model wrote",
            "begun beside another",
            "visible tokens beside calls",
            "reasoning tokens",
            "output tokens",
        ),
        rows=tuple(
            (
                kind.value,
                arm.title,
                summed(own, "model_calls"),
                summed(own, "ids_equal"),
                summed(own, "tools_run"),
                summed(own, "started_early"),
                summed(own, "side_by_side"),
                summed(own, "visible_tokens"),
                _reasoning(own),
                summed(own, "output_tokens"),
            )
            for kind, arm, own in _cells(arms, records)
        ),
        note="Visible tokens: words in messages that call tools, the only thinking of a model that does not reason in "
        "the API's sense; reasoning tokens are unknown for such a model, not 0.",
    )


def share(records: Sequence[TrialRecord], measure: str) -> str | None:
    """`0.30 [0.18, 0.45]`, or None where no trial has an answer."""
    yes, known = count(records, measure)
    return _interval(wilson(yes, known)) if known else None


def _interval(interval: Interval) -> str:
    return f"{interval.estimate:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _reasoning(records: Sequence[TrialRecord]) -> int | None:
    known = [value for record in records if isinstance(value := record.measures.get("reasoning_tokens"), int)]
    return sum(known) if known else None


def _cells(
    arms: Sequence[Arm], records: Sequence[TrialRecord]
) -> Iterator[tuple[PromptClass, Arm, list[TrialRecord]]]:
    for kind in PromptClass:
        for arm in arms:
            own = [record for record in records if record.task == kind.value and record.arm == arm.name]
            if own:
                yield kind, arm, own
