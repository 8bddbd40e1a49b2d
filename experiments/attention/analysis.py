"""What the records of the study `attention` say; every sentence of it is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean

import numpy as np

from experiments.attention.arms import ARMS, BY_CODE, COUNT, DEPTHS, LOOK_UP, MIDDLE, TRACE, depth_name
from experiments.attention.asking import unpacked
from experiments.framework import (
    Analysis,
    GridFigure,
    Line,
    LineFigure,
    Table,
    TrialRecord,
    by_cluster,
    paired_effect,
)
from experiments.framework.analysis import Cell
from experiments.framework.proportions import paired_proportion
from experiments.framework.statistics import (
    SEEDS_FOR_INTERVAL,
    Interval,
    bounded,
    holm,
    mean_of,
    wilson,
)
from serving.errors import UsageError

LEVEL = 0.05


def analyse(records: Sequence[TrialRecord]) -> Analysis:
    """Tables, figures and a conclusion; parts without a record are left out."""
    known = {arm.name for arm in ARMS}
    if not any(record.arm in known for record in records):
        raise UsageError("No record is of an arm of this study.")
    return Analysis(
        conclusion=" ".join((*_about_depth(records), *_about_cages(records), *_about_triangles(records))),
        tables=tuple(_tables(records)),
        figures=tuple(_figures(records)),
    )


def _of(records: Sequence[TrialRecord], arm: str) -> list[TrialRecord]:
    return [record for record in records if record.arm == arm]


def _words(interval: Interval | None, scale: float = 1) -> str | None:
    return None if interval is None else interval.words(scale=scale)


def _right(records: Sequence[TrialRecord], arm: str) -> tuple[int, int]:
    own = _of(records, arm)
    return sum(bool(record.measures["correct"]) for record in own), len(own)


def _against_middle(records: Sequence[TrialRecord]) -> dict[str, float]:
    """Exact p of every depth's recall against the middle's, Holm over depths; only where seeds suffice."""
    middle = by_cluster(records, MIDDLE, "correct")
    raw = {}
    for depth in DEPTHS:
        pairs = paired_proportion(by_cluster(records, depth_name(depth), "correct"), middle)
        if depth_name(depth) != MIDDLE and pairs is not None and pairs.pairs >= SEEDS_FOR_INTERVAL:
            raw[depth_name(depth)] = pairs.p_value
    return holm(raw)


def _about_depth(records: Sequence[TrialRecord]) -> Iterator[str]:
    recall = {depth: _right(records, depth_name(depth)) for depth in DEPTHS}
    asked = {depth: right / total for depth, (right, total) in recall.items() if total}
    if not asked:
        return
    right, total = (sum(pair[side] for pair in recall.values()) for side in (0, 1))
    yield f"The needle is found in {right} of {total} questions at {len(asked)} depths."
    low, high = min(asked, key=lambda depth: asked[depth]), max(asked, key=lambda depth: asked[depth])
    adjusted = _against_middle(records)
    below = [name for name, p in adjusted.items() if p < LEVEL]
    if asked[low] == asked[high]:
        yield f"Recall is {asked[low]:.0%} at every depth."
    else:
        yield f"Recall goes from {asked[low]:.0%} (at {low:.0%}) to {asked[high]:.0%} (at {high:.0%})."
    if adjusted and below:
        yield f"Different from the middle beyond chance (McNemar, Holm): {', '.join(below)}."
    elif adjusted:
        yield f"No depth differs from the middle beyond chance (smallest p after Holm {min(adjusted.values()):.2g})."
    else:
        yield f"With fewer than {SEEDS_FOR_INTERVAL} seeds no depth can be told from another."
    yield from _about_finding(records)


def _about_finding(records: Sequence[TrialRecord]) -> Iterator[str]:
    """Whether attention on the needle goes with a right answer."""
    needles = [record for depth in DEPTHS for record in _of(records, depth_name(depth))]
    sides: dict[bool, list[float]] = {True: [], False: []}
    for record in needles:
        times = record.measures["times_even"]
        if isinstance(times, int | float):
            sides[bool(record.measures["correct"])].append(float(times))
    if sides[True] and sides[False]:
        yield (
            f"At the deciding token the needle gets, beside the sink, {mean(sides[True]):.2g} times an even spread "
            "where it is found and "
            f"{mean(sides[False]):.2g} times where it is not."
        )
        effect = _found_minus_missed(needles)
        if effect is not None and effect.low is not None and effect.high is not None:
            sure = "" if effect.excludes_zero else ", which is not beyond chance"
            yield f"Per seed the difference is {effect.estimate:+.2g} [{effect.low:+.2g}, {effect.high:+.2g}]{sure}."
    else:
        only = "found" if sides[True] else "missed"
        both = mean([*sides[True], *sides[False]])
        yield f"It is always {only}, with {both:.2g} times an even spread of attention, so the two cannot be compared."


def _found_minus_missed(needles: Sequence[TrialRecord]) -> Interval | None:
    """Over the seeds that have both: mean where found minus mean where missed."""
    differences = []
    for seed in sorted({record.seed for record in needles}):
        own = [record for record in needles if record.seed == seed]
        found = [float(r.measures["times_even"] or 0) for r in own if r.measures["correct"]]
        missed = [float(r.measures["times_even"] or 0) for r in own if not r.measures["correct"]]
        if found and missed:
            differences.append(mean(found) - mean(missed))
    if len(differences) < SEEDS_FOR_INTERVAL:
        return None
    return bounded(np.array(differences)[:, None])


def _about_cages(records: Sequence[TrialRecord]) -> Iterator[str]:
    names = {LOOK_UP: "looked up", COUNT: "counted", BY_CODE: "counted by code"}
    rights = {arm: _right(records, arm) for arm in names}
    said = [f"{names[arm]} {right} of {total}" for arm, (right, total) in rights.items() if total]
    if not said:
        return
    times = {arm: mean_of(records, arm, "times_even") for arm in names}
    looks = [f"{names[arm]} {one.estimate:.2g}" for arm, one in times.items() if one is not None]
    yield (
        f"Cages right: {', '.join(said)}; attention on the lines that answer, in times an even spread: "
        f"{', '.join(looks)}."
    )


def _about_triangles(records: Sequence[TrialRecord]) -> Iterator[str]:
    for name in _triangle_names(records):
        ratio = _triangle_ratio(records, name)
        if ratio is not None and name.endswith(("itself", "themselves")):
            yield f"“{name}” has {_words(ratio)} times the mass that the same lengths have in random order."


def _triangle_names(records: Sequence[TrialRecord]) -> list[str]:
    names = {
        key.removeprefix("mass "): None
        for record in _of(records, TRACE)
        for key in record.measures
        if key.startswith("mass ")
    }
    return list(names)


def _triangle_ratio(records: Sequence[TrialRecord], name: str) -> Interval | None:
    """Mass ÷ expected, both as means over seeds."""
    rows = [
        (float(mass), float(expected))
        for record in _of(records, TRACE)
        if isinstance(mass := record.measures.get(f"mass {name}"), int | float)
        and isinstance(expected := record.measures.get(f"expected {name}"), int | float)
        and expected > 0
    ]
    if not rows:
        return None
    return bounded(np.array(rows), lambda means: means[:, 0] / means[:, 1])


def _tables(records: Sequence[TrialRecord]) -> Iterator[Table]:
    adjusted = _against_middle(records)
    rows = []
    for depth in DEPTHS:
        right, total = _right(records, depth_name(depth))
        if total:
            found = wilson(right, total)
            rows.append(
                (
                    f"{depth:.0%}",
                    total,
                    right,
                    f"{found.estimate:.0%} [{found.low or 0:.0%}, {found.high or 0:.0%}]",
                    _words(mean_of(records, depth_name(depth), "mass_share"), 100),
                    _words(mean_of(records, depth_name(depth), "times_even")),
                    _words(mean_of(records, depth_name(depth), "best_head_share"), 100),
                    adjusted.get(depth_name(depth), ""),
                )
            )
    if rows:
        yield Table(
            title="A needle at eleven depths: recall beside attention",
            columns=(
                "depth",
                "n",
                "found",
                "recall [95 %]",
                "mass on the needle, %",
                "× even",
                "best head, %",
                "p (Holm)",
            ),
            rows=tuple(rows),
            note="Found: the answer's first line gives the code and no other number; Wilson intervals. Mass: at the "
            "token that decides the answer, mean over heads and layers, with bootstrap intervals over seeds where "
            f"there are at least {SEEDS_FOR_INTERVAL}; × even: what the needle gets of the attention beside the sink, "
            "as a multiple of its share of the tokens. p: recall against the middle.",
        )
    yield from _cage_tables(records)
    yield from _triangle_tables(records)


def _cage_tables(records: Sequence[TrialRecord]) -> Iterator[Table]:
    rows: list[tuple[Cell, ...]] = []
    titles = {arm.name: arm.title for arm in ARMS}
    for name in (LOOK_UP, COUNT, BY_CODE):
        right, total = _right(records, name)
        if total:
            found = wilson(right, total)
            share = _words(mean_of(records, name, "mass_share"), 100)
            times = _words(mean_of(records, name, "times_even"))
            bounds = f"{found.estimate:.0%} [{found.low or 0:.0%}, {found.high or 0:.0%}]"
            rows.append((titles[name], total, right, bounds, share, times, _accuracy_effect(records, name)))
    if rows:
        yield Table(
            title="Finding beside counting",
            columns=(
                "question",
                "n",
                "right",
                "accuracy [95 %]",
                "mass on what answers, %",
                "× even",
                "accuracy against counting",
            ),
            rows=tuple(rows),
            note="A constrained choice, among all colours or the numbers up to a fifth of the cats. What answers: the "
            "asked cage's line, the lines that count, or the count made by code.",
        )


def _accuracy_effect(records: Sequence[TrialRecord], arm: str) -> str | None:
    if arm == COUNT:
        return ""
    mine, counted = by_cluster(records, arm, "correct"), by_cluster(records, COUNT, "correct")
    if len(mine.keys() & counted.keys()) < SEEDS_FOR_INTERVAL:
        return None
    effect = paired_effect(mine, counted, np.random.default_rng(0)).interval
    return f"{effect.estimate:+.2f} [{effect.low or 0:+.2f}, {effect.high or 0:+.2f}]"


def _triangle_tables(records: Sequence[TrialRecord]) -> Iterator[Table]:
    names = _triangle_names(records)
    if names:
        yield Table(
            title="Triangles of an agent's trace",
            columns=("who looks where", "n", "mass, %", "expected, %", "mass ÷ expected [95 %]"),
            rows=tuple(
                (
                    name,
                    len(by_cluster(records, TRACE, f"mass {name}")),
                    _words(mean_of(records, TRACE, f"mass {name}"), 100),
                    _words(mean_of(records, TRACE, f"expected {name}"), 100),
                    _words(_triangle_ratio(records, name)),
                )
                for name in names
            ),
            note="Expected: the same heads and lengths, the context's parts in random order. Mean over heads and "
            "layers.",
        )


def _figures(records: Sequence[TrialRecord]) -> Iterator[LineFigure | GridFigure]:
    depths = [depth for depth in DEPTHS if _of(records, depth_name(depth))]
    if depths:
        recall = [wilson(*_right(records, depth_name(depth))) for depth in depths]
        times = [mean_of(records, depth_name(depth), "times_even") for depth in depths]
        yield LineFigure(
            name="recall-by-depth",
            title="Is the needle found? (accuracy)",
            axis="depth in the text",
            value_axis="share of questions right",
            places=tuple(depths),
            lines=(_line("recall", recall),),
            caption="Wilson intervals, 95 %.",
        )
        yield LineFigure(
            name="attention-by-depth",
            title="Is the needle looked at? (attention, not accuracy)",
            axis="depth in the text",
            value_axis="mass ÷ an even spread, beside the sink",
            places=tuple(depths),
            lines=(_line("deciding token", [one for one in times if one is not None]),),
            even=1.0,
            caption="Mean over heads and layers at the token that decides the answer; bootstrap intervals over seeds.",
        )
    yield from _layer_figures(records)
    for record in _of(records, TRACE):
        stored = record.measures.get("map")
        if isinstance(stored, str):
            yield GridFigure.model_validate_json(stored)
            break


def _line(label: str, intervals: Sequence[Interval]) -> Line:
    return Line(
        label=label,
        values=tuple(one.estimate for one in intervals),
        low=tuple(one.low for one in intervals),
        high=tuple(one.high for one in intervals),
    )


def _layer_figures(records: Sequence[TrialRecord]) -> Iterator[LineFigure]:
    needles = [record for depth in DEPTHS for record in _of(records, depth_name(depth))]
    groups = (("needle, deciding token", needles), ("trace, all rows", _of(records, TRACE)))
    for measure, title, unit in (
        ("by_layer_sink", "Attention on the sink by layer", "share of a row on token 0"),
        ("by_layer_entropy", "Entropy of attention by layer", "nats"),
        ("by_layer_mass", "Attention on the needle by layer", "share of a row"),
    ):
        lines = []
        for label, own in groups:
            values = [unpacked(record.measures[measure]) for record in own if measure in record.measures]
            if values:
                lines.append(Line(label=label, values=tuple(map(float, np.mean(values, axis=0)))))
        if lines:
            yield LineFigure(
                name=measure.replace("_", "-"),
                title=title,
                axis="layer",
                value_axis=unit,
                places=tuple(map(float, range(len(lines[0].values)))),
                lines=tuple(lines),
                caption="Mean over heads, seeds and questions.",
            )
