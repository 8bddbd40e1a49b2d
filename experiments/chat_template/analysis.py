"""What the records of the study `chat-template` say; every sentence is computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from experiments.chat_template.names import TOOL_ROLE
from experiments.chat_template.pairs import Compared, compare, lost_share
from experiments.chat_template.tables import (
    answers_table,
    class_table,
    compared_table,
    drift_table,
    tokens_table,
)
from experiments.framework import Analysis, Arm, Cross, CrossFigure, Exclusion, TrialRecord
from experiments.framework.analysis import arms_that_ran
from experiments.framework.arms import NULL_REBUILD
from experiments.framework.statistics import Interval, judged_alike, wilson
from experiments.tool_calling.names import EXCLUDED
from experiments.tool_calling.tables import count, percent, summed


def analyse(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Analysis:
    """Tables, the one figure and a conclusion; arms without a record are left out, prompts not asked are exclusions."""
    asked = [record for record in records if EXCLUDED not in record.measures]
    ran = arms_that_ran(arms, asked)
    compared = compare(ran, asked)
    titles = {arm.name: arm.title for arm in arms}
    left_out = Counter(str(record.measures[EXCLUDED]) for record in records if EXCLUDED in record.measures)
    return Analysis(
        conclusion=" ".join(_conclusion(ran, asked, compared, titles)),
        tables=(
            answers_table(ran, asked),
            *compared_table(compared, titles),
            class_table(ran, asked),
            tokens_table(ran, asked),
            *drift_table(ran, asked),
        ),
        figures=tuple(_figure(ran, asked, compared)),
        exclusions=tuple(Exclusion(reason=reason, trials=trials) for reason, trials in left_out.items()),
    )


def _conclusion(
    arms: Sequence[Arm], records: Sequence[TrialRecord], compared: Sequence[Compared], titles: dict[str, str]
) -> Iterator[str]:
    calls = summed(records, "model_calls")
    yield f"The server read the rendered ids in {summed(records, 'ids_equal')} of {calls} calls."
    base = [record for record in records if record.arm == TOOL_ROLE]
    right, total = count(base, "success")
    if total:
        yield f"{titles[TOOL_ROLE]}: {right} of {total} answers are right ({percent(wilson(right, total))})."
    can_lose = _can_lose(base, compared)
    if compared and not can_lose:
        yield "That leaves too few to lose: no loss that could happen here would have been found."
    for one in compared:
        if one.found:
            yield _difference(one, titles)
    silent = [one for one in compared if not one.found]
    if silent:
        yield _no_difference(silent, titles)
    yield from _quadrants(arms, records, compared, can_lose=can_lose)
    agreed, pairs = judged_alike(records, TOOL_ROLE, NULL_REBUILD)
    if pairs:
        yield f"The same request built anew was judged the same in {agreed} of {pairs} prompts."


def _can_lose(base: Sequence[TrialRecord], compared: Sequence[Compared]) -> bool:
    """Whether what the base has right beyond guessing is as much as the smallest loss that this run would find."""
    right, total = count(base, "success")
    choices = [value for record in base if isinstance(value := record.measures.get("choices"), int)]
    room = right / total - (1 / min(choices) if choices else 0.0) if total else 0.0
    return any(one.detectable is not None and one.detectable <= room for one in compared)


def _difference(one: Compared, titles: dict[str, str]) -> str:
    more = "raises" if one.right.change.estimate > 0 else "lowers"
    return (
        f"“{titles[one.arm]}” {more} the share right by {one.right.change.words('+.0f', scale=100)} points against "
        f"“{titles[one.against]}” (n {one.right.pairs}, exact McNemar p {one.adjusted:.2g} after Holm)."
    )


def _no_difference(silent: Sequence[Compared], titles: dict[str, str]) -> str:
    parts = []
    for one in silent:
        found = "nothing at all" if one.detectable is None else f"{100 * one.detectable:.0f} points"
        other = "" if one.against == TOOL_ROLE else f" against “{titles[one.against]}”"
        change = one.right.change.words("+.0f", scale=100)
        parts.append(f"“{titles[one.arm]}”{other} {change} points (n {one.right.pairs}; {found})")
    return f"No more than chance, with what the run would have found: {'; '.join(parts)}."


def _quadrants(
    arms: Sequence[Arm], records: Sequence[TrialRecord], compared: Sequence[Compared], *, can_lose: bool
) -> Iterator[str]:
    """Which arms cost tokens, which cost answers: the first is exact, the second is a test."""
    judged = {one.arm: one for one in compared if one.against == TOOL_ROLE}
    groups: dict[tuple[bool, bool], list[str]] = {}
    for arm in arms:
        loss = lost_share(records, arm.name, against=TOOL_ROLE)
        if arm.name not in judged or loss is None:
            continue
        breaks = judged[arm.name].found and judged[arm.name].right.change.estimate < 0
        words = f"“{arm.title}”" + (f" ({100 * loss.estimate:+.1f} %)" if loss.estimate else "")
        groups.setdefault((loss.estimate > 0, breaks), []).append(words)
    unfound = ", and no loss of right answers was found" if can_lose else ""
    names = {
        (True, True): "cost both cached tokens and right answers",
        (True, False): f"cost cached tokens{unfound}",
        (False, True): "cost right answers and no cached tokens",
        (False, False): f"cost no cached tokens{unfound}",
    }
    for key, words in names.items():
        if key in groups:
            yield f"These {words}, the same right turn being sent: {', '.join(groups[key])}."


def _figure(
    arms: Sequence[Arm], records: Sequence[TrialRecord], compared: Sequence[Compared]
) -> Iterator[CrossFigure]:
    effects = {one.arm: one.right.change for one in compared if one.against == TOOL_ROLE}
    crosses = []
    for arm in arms:
        loss, effect = lost_share(records, arm.name, against=TOOL_ROLE), effects.get(arm.name)
        if loss is not None and effect is not None and arm.name != NULL_REBUILD:
            crosses.append(_cross(arm.title, loss, effect))
    if crosses:
        yield CrossFigure(
            name="cache-and-answers",
            title="What breaks the cache lies right, what breaks the model lies low",
            axis="more prompt tokens lost than in the base, points of all prompt tokens",
            other_axis="change of the share right, points",
            crosses=tuple(crosses),
            caption="Both against the base, paired by prompt, with 95 % intervals (bootstrap across, Newcombe up). "
            "Lost tokens are exact counts on each prompt's right turn, so that an arm whose turns fail early does not "
            "look cheap; right answers are of real turns.",
        )


def _cross(label: str, loss: Interval, effect: Interval) -> Cross:
    def points(value: float | None) -> float | None:
        return None if value is None else 100 * value

    return Cross(
        label=label,
        across=100 * loss.estimate,
        across_low=points(loss.low),
        across_high=points(loss.high),
        up=100 * effect.estimate,
        up_low=points(effect.low),
        up_high=points(effect.high),
    )
