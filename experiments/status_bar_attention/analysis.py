"""What the records of the study `status-bar-attention` say; every sentence of it is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from experiments.attention.asking import unpacked
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
from experiments.framework.arms import NULL_REBUILD
from experiments.framework.statistics import (
    SEEDS_FOR_INTERVAL,
    Interval,
    PairedEffect,
    bounded,
    cluster_means,
    holm,
    mean_over_clusters,
    wilson,
)
from experiments.status_bar.arms import BASE, FILLER, NO_BAR

GROUPS: Final = {
    "bar": "the bar",
    "records": "the call records",
    "others": "other steps",
    "rules": "the rules",
    "question": "the question",
}
ROWS: Final = {"decision": "deciding token", "generated": "generated rows"}


def analyse(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Analysis:
    """Tables, figures and a conclusion; arms without a record are left out."""
    ran = arms_that_ran(arms, records)
    return Analysis(
        conclusion=" ".join(_conclusion(ran, records)),
        tables=(*_mass_tables(ran, records), _decision_table(ran, records), *_effect_tables(ran, records)),
        figures=tuple(_figures(ran, records)),
    )


def density(
    records: Sequence[TrialRecord], arm: str, group: str, rows: str = "decision"
) -> dict[str, list[float]]:
    """Mass per token of a group by cluster, in multiples of an even spread; both without the sink."""
    found: dict[str, list[float]] = {}
    for record in records:
        mass, sink = record.measures.get(f"{rows} {group}"), record.measures.get(f"{rows} sink")
        tokens = record.measures.get(f"tokens {group}")
        prompt = record.calls[0].prompt_tokens if record.calls else None
        if record.arm != arm or prompt is None or not isinstance(tokens, int):
            continue
        if isinstance(mass, int | float) and isinstance(sink, int | float) and sink < 1:
            times = mass / (1 - sink) / tokens * (prompt - 1)
            found.setdefault(record.spec.cluster, []).append(times)
    return found


def ratio(
    records: Sequence[TrialRecord], arm: str, group: str, other: str, rows: str = "decision"
) -> Interval | None:
    """Mass per token of `group` ÷ that of `other`, each a mean over clusters, clusters resampled whole."""
    one, two = density(records, arm, group, rows), density(records, arm, other, rows)
    both = np.array([(np.mean(one[name]), np.mean(two[name])) for name in one if name in two])
    if not len(both) or not both[:, 1].all():
        return None
    return bounded(both, lambda means: means[:, 0] / means[:, 1])


def _words(interval: Interval | None, form: str = ".2g") -> str | None:
    return None if interval is None else interval.words(form)


def _effect(one: dict[str, list[float]], other: dict[str, list[float]]) -> PairedEffect | None:
    if len(one.keys() & other.keys()) < SEEDS_FOR_INTERVAL:
        return None
    return paired_effect(one, other, np.random.default_rng(0))


def _conclusion(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Iterator[str]:
    names = {arm.name for arm in arms}
    found = ratio(records, BASE, "bar", "records") if BASE in names else None
    if found is not None:
        yield (
            f"At the deciding token, a token of the bar gets {_words(found)} times what a token of the call records "
            "gets."
        )
        if found.low is not None and found.high is not None and found.low <= 1 <= found.high:
            yield "The two cannot be told apart in this run."
    elif BASE in names:
        yield "The call records leave no token in this model's prompt, so the bar cannot be held against them."
    if {BASE, FILLER} <= names:
        yield from _against_filler(records)
    if {BASE, NO_BAR} <= names:
        yield from _against_none(records)
    right = {arm.name: _right(records, arm.name) for arm in arms}
    said = [f"{arm.title} {right[arm.name][0]} of {right[arm.name][1]}" for arm in arms]
    yield f"Decisions right: {', '.join(said)}."


def _against_filler(records: Sequence[TrialRecord]) -> Iterator[str]:
    """Whether the bar's words get more than its place does."""
    effect = _effect(density(records, BASE, "bar"), density(records, FILLER, "bar"))
    if effect is None:
        yield f"Words and place cannot be told apart with fewer than {SEEDS_FOR_INTERVAL} clusters."
        return
    interval = effect.interval
    if interval.excludes_zero:
        more = "more" if interval.estimate > 0 else "less"
        yield (
            f"Its words get {more} than filler at the same place: {_words(interval, '+.2g')} times an even spread "
            f"(p {effect.p_value or 0:.2g})."
        )
    else:
        yield (
            f"Its words get no more than filler at the same place beyond chance ({_words(interval, '+.2g')} times an "
            f"even spread; {effect.would_have_found('.2g')})."
        )


def _against_none(records: Sequence[TrialRecord]) -> Iterator[str]:
    """Whether the records lose attention when there is a bar."""
    effect = _effect(density(records, BASE, "records"), density(records, NO_BAR, "records"))
    if effect is None:
        return
    interval = effect.interval
    if interval.excludes_zero:
        change = "gain" if interval.estimate > 0 else "lose"
        yield f"With the bar the call records {change} {abs(interval.estimate):.2g} times an even spread per token."
    else:
        yield (
            f"The call records get the same with and without the bar, within {_words(interval, '+.2g')} times an even "
            "spread."
        )


def _right(records: Sequence[TrialRecord], arm: str) -> tuple[int, int]:
    own = [record for record in records if record.arm == arm]
    return sum(bool(record.measures["correct"]) for record in own), len(own)


def _mass_tables(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Iterator[Table]:
    for rows, looking in ROWS.items():
        lines: list[tuple[Cell, ...]] = []
        for arm in arms:
            cells = [_words(mean_over_clusters(density(records, arm.name, group, rows))) for group in GROUPS]
            if any(cell is not None for cell in cells):
                against = _words(ratio(records, arm.name, "bar", "records", rows))
                lines.append((arm.title, *(cell or "–" for cell in cells), against or "–"))
        if lines:
            yield Table(
                title=f"Attention per token at the {looking}, in multiples of an even spread",
                columns=("arm", *GROUPS.values(), "bar ÷ records"),
                rows=tuple(lines),
                note="1 is what every token would get if a row spread what it has beside the sink evenly over the "
                "prompt. Mean over heads, layers and clusters (task and seed); intervals resample clusters and need "
                f"{SEEDS_FOR_INTERVAL}.",
            )


def _decision_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    effects = {}
    base = by_cluster(records, NO_BAR, "correct")
    for arm in arms:
        found = _effect(by_cluster(records, arm.name, "correct"), base) if arm.name != NO_BAR else None
        if found is not None:
            effects[arm.name] = found
    adjusted = holm({name: one.p_value for name, one in effects.items() if one.p_value is not None})
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        right, total = _right(records, arm.name)
        accuracy = wilson(right, total)
        effect = effects.get(arm.name)
        spoken = by_cluster(records, arm.name, "said_right")
        rows.append(
            (
                arm.title,
                total,
                right,
                _words(accuracy),
                None if effect is None else _words(effect.interval, "+.2g"),
                adjusted.get(arm.name, ""),
                "" if effect is None or effect.detectable is None else effect.detectable,
                _words(mean_over_clusters(by_cluster(records, arm.name, "margin")), "+.2g"),
                float(cluster_means(spoken).mean()) if spoken else None,
            )
        )
    return Table(
        title="May it call again?",
        columns=(
            "arm",
            "n",
            "right",
            "accuracy [95 %]",
            "against no bar",
            "p (Holm)",
            "detectable",
            "margin of the right choice, nats",
            "right in free words, share",
        ),
        rows=tuple(rows),
        note="A constrained choice between yes and no; half of the seeds have a call left. Differences are paired by "
        "cluster.",
    )


def _effect_tables(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Iterator[Table]:
    """A beside B: the bar's arm against the others, part by part."""
    names = {arm.name for arm in arms}
    if BASE not in names:
        return
    rows: list[tuple[Cell, ...]] = []
    for other in arms:
        if other.name in (BASE, NULL_REBUILD):
            continue
        for group, words in GROUPS.items():
            effect = _effect(density(records, BASE, group), density(records, other.name, group))
            if effect is not None:
                cells = (_words(effect.interval, "+.2g"), effect.p_value, effect.detectable)
                rows.append((f"{words}, against “{other.title}”", effect.clusters, *cells))
    if rows:
        yield Table(
            title="Count and verdict beside the other arms: change of attention per token at the deciding token",
            columns=("part", "clusters", "change [95 %]", "p", "detectable"),
            rows=tuple(rows),
            note="In multiples of an even spread, paired by cluster; p is a sign-flip test, not adjusted.",
        )


def _figures(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Iterator[BarFigure | LineFigure]:
    bars = []
    for arm in arms:
        for group in ("bar", "records"):
            one = mean_over_clusters(density(records, arm.name, group))
            if one is not None:
                bars.append(Bar.of(f"{arm.title}: {GROUPS[group]}", one))
    if bars:
        yield BarFigure(
            name="attention-per-token",
            title="A token of the bar beside a token of the call records",
            axis="attention at the deciding token, multiples of an even spread",
            bars=tuple(bars),
            caption="Mean over heads, layers and clusters, with 95 % bootstrap intervals where there are at least "
            f"{SEEDS_FOR_INTERVAL} clusters.",
        )
    lines = []
    for arm in arms:
        stored = [
            unpacked(record.measures["by_layer bar"])
            for record in records
            if record.arm == arm.name and "by_layer bar" in record.measures
        ]
        if stored and arm.name != NULL_REBUILD:
            lines.append(Line(label=arm.title, values=tuple(map(float, np.mean(stored, axis=0)))))
    if lines:
        yield LineFigure(
            name="bar-by-layer",
            title="Attention on the bar by layer",
            axis="layer",
            value_axis="share of the deciding row",
            places=tuple(map(float, range(len(lines[0].values)))),
            lines=tuple(lines),
            caption="Mean over heads and clusters; bars of one length but for count and prose.",
        )
