"""What the records of the study `status-bar-techniques` say; every sentence is computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from experiments.framework import Analysis, Arm, Bar, BarFigure, Exclusion, Table, TrialRecord
from experiments.framework.analysis import Cell, arms_that_ran
from experiments.framework.arms import NULL_REBUILD
from experiments.framework.statistics import SEEDS_FOR_INTERVAL, judged_alike, wilson
from experiments.status_bar.techniques_contrasts import (
    INTERACTIONS,
    MAIN,
    Contrast,
    Term,
    contrasts,
    incomplete,
)
from experiments.status_bar.techniques_design import NONE, WORDS
from experiments.status_bar.techniques_measures import FORMS, ITERATIONS, MISSED, SUCCESS, VIOLATIONS

OUTCOMES: Final[Mapping[str, str]] = {
    SUCCESS: "tasks solved",
    MISSED: "subtasks missed",
    ITERATIONS: "model calls",
    VIOLATIONS: "calls beyond the limit",
}
"""The measures that effects are computed on, in words."""


def analyse(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Analysis:
    """Tables, figures and a conclusion; arms without a record are left out."""
    scored = [record for record in records if record.scored]
    ran = arms_that_ran(arms, scored)
    main = {measure: contrasts(scored, measure, MAIN) for measure in OUTCOMES}
    pairs = {measure: contrasts(scored, measure, INTERACTIONS) for measure in (SUCCESS, MISSED)}
    left_out = incomplete(scored, SUCCESS)
    return Analysis(
        conclusion=" ".join(_conclusion(scored, main, pairs)),
        tables=(
            *(_effects_table(measure, effects, "Main effects") for measure, effects in main.items()),
            *(
                _effects_table(measure, effects, "Interactions of two techniques")
                for measure, effects in pairs.items()
                if effects
            ),
            _runs_table(ran, scored),
            _tasks_table(scored),
            _calls_table(ran, scored),
        ),
        figures=tuple(_figures(main)),
        exclusions=(Exclusion(reason="tasks that not all sixteen runs have", trials=left_out),)
        if left_out
        else (),
    )


def _conclusion(
    records: Sequence[TrialRecord],
    main: Mapping[str, Mapping[Term, Contrast]],
    pairs: Mapping[str, Mapping[Term, Contrast]],
) -> Iterator[str]:
    own = [record for record in records if record.arm != NULL_REBUILD]
    solved, total = _solved(own)
    clusters = {record.spec.cluster for record in own}
    arms = {record.arm for record in own}
    if not solved:
        yield (
            f"No task was solved in any arm ({total} trials): on solved tasks this model is at the floor, where no "
            "technique can show what it does."
        )
    elif solved == total:
        yield f"Every task was solved in every arm ({total} trials), so no technique can add to that."
    else:
        yield f"{solved} of {total} trials are solved ({len(clusters)} tasks under {len(arms)} arms){_by_kind(own)}."
    for measure in OUTCOMES:
        yield from _effect_sentences(measure, main[measure], own)
    found = [
        f"{_words(term)} on {OUTCOMES[measure]} ({one.effect.words('+.2f')}, p {one.adjusted:.2g})"
        for measure, effects in pairs.items()
        for term, one in effects.items()
        if one.found
    ]
    if found:
        yield f"Interactions beyond chance: {'; '.join(found)}."
    elif any(pairs.values()):
        yield "Neither in tasks solved nor in subtasks missed do two techniques act on each other beyond chance."
    agreed, both = judged_alike(records, NONE, NULL_REBUILD)
    if both:
        yield f"The arm without techniques, rebuilt, was graded the same in {agreed} of {both} tasks."
    yield f"The server read the rendered ids in {_sum(records, 'ids_equal')} of {_sum(records, ITERATIONS)} calls."


def _by_kind(records: Sequence[TrialRecord]) -> str:
    parts = []
    for kind, own in _kinds(records).items():
        solved, total = _solved(own)
        parts.append(f"{kind} {solved} of {total}")
    return f": {', '.join(parts)}" if len(parts) > 1 else ""


def _effect_sentences(
    measure: str, effects: Mapping[Term, Contrast], records: Sequence[TrialRecord]
) -> Iterator[str]:
    words = OUTCOMES[measure]
    if not effects:
        if measure == SUCCESS:
            yield "No task ran under all sixteen arms, so nothing is said of effects."
        return
    clusters = next(iter(effects.values())).clusters
    values = {value for record in records if (value := record.measures.get(measure)) is not None}
    if len(values) == 1:
        if measure != SUCCESS:  # said in the first sentence
            yield f"On {words} nothing can be seen: every trial has {int(values.pop())}."
        return
    found = {term: one for term, one in effects.items() if one.found}
    for term, one in found.items():
        direction = "rise" if one.effect.estimate > 0 else "fall"
        yield f"With {_words(term)} {words} {direction}: {_shown(one)}."
    if clusters < SEEDS_FOR_INTERVAL:
        yield f"On {words} there are {clusters} tasks, too few for an interval (it takes {SEEDS_FOR_INTERVAL})."
    elif not found:
        term, one = max(effects.items(), key=lambda item: abs(item[1].effect.estimate))
        least = [other.detectable for other in effects.values() if other.detectable is not None]
        would = f"; effects of {max(least):.2f} would have been found 8 times in 10" if least else ""
        yield f"No technique changes {words} beyond chance (the largest: {_words(term)} {_shown(one)}{would})."


def _shown(one: Contrast) -> str:
    return f"{one.effect.words('+.2f')} (n {one.clusters} tasks, p {one.adjusted:.2g} after Holm)"


def _words(term: Term) -> str:
    return " × ".join(WORDS[technique] for technique in term)


def _effects_table(measure: str, effects: Mapping[Term, Contrast], title: str) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            _words(term),
            one.clusters,
            one.effect.words("+.3f"),
            one.p_value,
            one.adjusted,
            one.detectable,
        )
        for term, one in effects.items()
    ]
    return Table(
        title=f"{title} on {OUTCOMES[measure]}",
        columns=("technique", "tasks", "effect [95 %]", "p (sign-flip)", "p (Holm)", "detectable"),
        rows=tuple(rows),
        note="The mean of the eight runs with the technique, minus that of the eight without it; of two: of the runs "
        "in which both are on or both off, minus the others. Tasks (with their seed) are resampled; Holm over the "
        f"rows of this table; no bounds below {SEEDS_FOR_INTERVAL} tasks; detectable is unknown where nothing varied."
        + (" Only tasks with a limit count." if measure == VIOLATIONS else "")
        + (" Fewer is better only where the task is solved all the same." if measure == ITERATIONS else ""),
    )


def _runs_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        own = [record for record in records if record.arm == arm.name]
        rows.append((arm.title, *_outcome_cells(own)))
    return Table(
        title="The runs",
        columns=("arm", *_OUTCOME_COLUMNS),
        rows=tuple(rows),
        note=_OUTCOME_NOTE,
    )


def _tasks_table(records: Sequence[TrialRecord]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (kind, *_outcome_cells([record for record in own if record.arm != NULL_REBUILD]))
        for kind, own in _kinds(records).items()
    ]
    return Table(
        title="The tasks, over all arms",
        columns=("task", *_OUTCOME_COLUMNS),
        rows=tuple(rows),
        note=_OUTCOME_NOTE,
    )


_OUTCOME_COLUMNS: Final = (
    "trials",
    "solved [Wilson]",
    "subtasks missed",
    "spoiled files",
    "beyond the limit",
    "model calls, mean",
    "repeated calls",
    "trials with errors",
    "of them solved",
    "gave up",
    "output tokens, mean",
)
_OUTCOME_NOTE: Final = (
    "Solved by the final state alone: every file right, given files as they were, and the limit kept. Repeated: the "
    "same call with the same arguments, calls of the telephone aside. Intervals take trials as independent, which "
    "those of one task are not."
)


def _outcome_cells(own: Sequence[TrialRecord]) -> tuple[Cell, ...]:
    solved, total = _solved(own)
    gave_up = Counter(str(reason) for record in own if (reason := record.measures.get("gave_up")) is not None)
    return (
        total,
        f"{solved}/{total}: {wilson(solved, total).words('.2f')}" if total else None,
        f"{_sum(own, MISSED)} of {_sum(own, 'subtasks')}",
        _sum(own, "spoiled"),
        _sum(own, VIOLATIONS) if any(r.measures.get(VIOLATIONS) is not None for r in own) else None,
        _mean(own, ITERATIONS),
        _sum(own, "repeated_calls"),
        sum(record.measures.get("recovered") is not None for record in own),
        sum(record.measures.get("recovered") is True for record in own),
        ", ".join(f"{reason} {count}" for reason, count in sorted(gave_up.items())) or "0",
        _mean(own, "output_tokens"),
    )


def _calls_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        own = [record for record in records if record.arm == arm.name]
        rows.append(
            (
                arm.title,
                _sum(own, ITERATIONS),
                _sum(own, "ids_equal"),
                *(_sum(own, f"form_{form}") for form in FORMS),
                _sum(own, "answers_cut"),
                _sum(own, "empty_messages"),
                _mean(own, "prompt_tokens"),
            )
        )
    return Table(
        title="How the calls were written",
        columns=(
            "arm",
            "model calls",
            "ids equal the server's",
            *(form.value for form in FORMS),
            "messages cut off",
            "empty messages",
            "prompt tokens of a task, mean",
        ),
        rows=tuple(rows),
        note="Tool calls by the form of their message, every form being read but the malformed one.",
    )


def _figures(main: Mapping[str, Mapping[Term, Contrast]]) -> Iterator[BarFigure]:
    for measure, effects in main.items():
        if effects:
            yield BarFigure(
                name=f"effects-{measure.replace('_', '-')}",
                title=f"What each technique does to {OUTCOMES[measure]}",
                axis=f"change of {OUTCOMES[measure]} a task",
                bars=tuple(Bar.of(_words(term), one.effect) for term, one in effects.items()),
                caption="Main effects over the sixteen runs, with 95 % intervals over tasks where there are enough.",
            )


def _kinds(records: Sequence[TrialRecord]) -> dict[str, list[TrialRecord]]:
    kinds: dict[str, list[TrialRecord]] = {}
    for record in records:
        kinds.setdefault(record.task.rpartition("-")[0], []).append(record)
    return kinds


def _solved(records: Sequence[TrialRecord]) -> tuple[int, int]:
    return sum(record.measures[SUCCESS] is True for record in records), len(records)


def _sum(records: Sequence[TrialRecord], measure: str) -> int:
    """What is not known, or has no meaning for a task, counts nothing."""
    return sum(value for record in records if isinstance(value := record.measures.get(measure), int))


def _mean(records: Sequence[TrialRecord], measure: str) -> float | None:
    values = [value for record in records if isinstance(value := record.measures.get(measure), int | float)]
    return round(sum(values) / len(values), 1) if values else None
