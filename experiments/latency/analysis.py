"""What a latency run says: times, rates and reuse of every cell, shares of the floor, and a computed conclusion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.framework import Analysis, Arm, Bar, BarFigure, Line, LineFigure, Table, TrialRecord
from experiments.framework.analysis import Cell
from experiments.framework.figures import AnyFigure
from experiments.framework.statistics import Interval, mean_of
from experiments.latency.cells import AGAIN, CEILINGS, Load, number
from experiments.latency.selfcheck import Phase, Share, shares

LATE: Final = 0.1
"""Of the mean gap between arrivals: a client that is later than this changes the load."""
ENERGY: Final = "joules_per_output_token"
TIMES: Final[tuple[tuple[str, str, float], ...]] = (
    ("ttft_p50_s", "TTFT p50 (ms)", 1e3),
    ("ttft_p95_s", "TTFT p95 (ms)", 1e3),
    ("tpot_mean_s", "TPOT (ms)", 1e3),
    ("itl_p95_s", "ITL p95 (ms)", 1e3),
    ("latency_p50_s", "latency p50 (ms)", 1e3),
    ("full_requests_per_s", "requests/s", 1.0),
    ("full_output_tokens_per_s", "output tokens/s", 1.0),
    (ENERGY, "J/output token", 1.0),
)


def analyse(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Analysis:
    """Tables, figures and the sentence; cells come in the order of `arms`, those that a run has beyond them after."""
    present = dict.fromkeys(record.arm for record in records)
    known = [arm.name for arm in arms if arm.name in present]
    cells = [name for name in dict.fromkeys((*known, *sorted(present))) if name != CEILINGS]
    found = shares(records)
    figures = (*_sweep(cells, records), *_hits(cells, records), *_floor_figure(cells, found))
    return Analysis(
        conclusion=_conclusion(cells, records, found),
        tables=(_times_table(cells, records), _floor_table(cells, found), _reuse_table(cells, records)),
        figures=figures,
    )


def _times_table(cells: Sequence[str], records: Sequence[TrialRecord]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    has_energy = any(record.measures.get(ENERGY) is not None for record in records)
    columns = [column for column in TIMES if has_energy or column[0] != ENERGY]
    for name in cells:
        own = [record for record in records if record.arm == name]
        found = (mean_of(records, name, measure) for measure, _, _ in columns)
        shown = [
            None if one is None else one.words(".3g", scale=scale)
            for one, (_, _, scale) in zip(found, columns, strict=True)
        ]
        requests = sum(int(record.measures.get("requests") or 0) for record in own)
        rows.append((name, requests, *shown, _steady(own)))
    return Table(
        title="Times and rates",
        columns=("cell", "requests", *(title for _, title, _ in columns), "steady"),
        rows=tuple(rows),
        note="Means over seeds with 95 % intervals (five seeds or more). Percentiles are of one trial's requests. "
        "Rates count the time in which the load was full. `steady`: trials whose series settled (MSER) of those with "
        "enough requests to tell."
        + (" Joules are the whole machine's packages or cards, idling included." if has_energy else ""),
    )


def _floor_table(cells: Sequence[str], found: Sequence[Share]) -> Table:
    rows = [
        (
            share.arm,
            share.phase.value,
            f"{1e3 * share.floor_s:.3g}",
            f"{1e3 * share.measured_s:.3g}",
            share.share.words(".1f", scale=100),
            share.ceiling.value,
            "IMPOSSIBLE" if share.impossible else "ok",
        )
        for share in _in_order(cells, found)
    ]
    return Table(
        title="Shares of the floor",
        columns=(
            "cell",
            "phase",
            "floor (ms)",
            "measured (ms)",
            "floor / measured (%)",
            "bound by",
            "self-check",
        ),
        rows=tuple(rows),
        note="The floor is the least time that the machine's measured bandwidth and matrix rate allow for the "
        "work that no engine can leave out. Measured: mean TTFT for a prefill, mean TPOT for a decode step; under "
        "load a TTFT holds queueing too. More than 100 % beyond its interval is impossible: a ceiling is wrong.",
    )


def _reuse_table(cells: Sequence[str], records: Sequence[TrialRecord]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name in cells:
        own = [record for record in records if record.arm == name]
        calls = [call for record in own for call in record.calls]
        known = [(c.prompt_tokens, c.cached_tokens) for c in calls]
        whole = [(p, c) for p, c in known if p is not None and c is not None]
        share = sum(c for _, c in whole) / sum(p for p, _ in whole) if whole else None
        predicted = sum(
            c.predicted_tokens is not None and c.predicted_tokens == c.cached_tokens for c in calls
        )
        asked = own[0].factors["load.hit_percent"]
        rows.append((name, f"{asked} %", share, len(calls), predicted))
    return Table(
        title="Reuse",
        columns=("cell", "asked", "cached share", "calls", "calls with predicted == reported"),
        rows=tuple(rows),
        note="Asked is of the first prompt of a conversation. A run stops at the first call whose reported reuse "
        "is more than one block from what was asked.",
    )


def _sweep(cells: Sequence[str], records: Sequence[TrialRecord]) -> list[AnyFigure]:
    """Throughput over concurrency, one line for every shape with at least two points."""
    closed = [
        (name, factors) for name, factors in _factors(cells, records) if factors["load.kind"] == Load.CLOSED
    ]
    groups = _grouped(closed, records, "load.concurrency", "full_output_tokens_per_s")
    title = "Throughput over concurrency"
    return [_lines("throughput", title, "clients", "output tokens/s", groups, 1.0)] if groups else []


def _hits(cells: Sequence[str], records: Sequence[TrialRecord]) -> list[AnyFigure]:
    """TTFT over the share of the prompt that was cached."""
    single = [(name, factors) for name, factors in _factors(cells, records) if factors["load.turns"] == 1]
    groups = _grouped(single, records, "load.hit_percent", "ttft_p50_s")
    title, axis = "What a cached beginning saves", "asked share of the prompt in the cache (%)"
    return [_lines("ttft-over-reuse", title, axis, "TTFT p50 (ms)", groups, 1e3)] if groups else []


def _grouped(
    cells: Sequence[tuple[str, dict[str, object]]], records: Sequence[TrialRecord], axis: str, measure: str
) -> dict[str, dict[float, Interval]]:
    """Cells that differ in `axis` alone, as label → place → interval; a single cell is no line."""
    groups: dict[str, dict[float, Interval]] = {}
    for name, factors in cells:
        place, found = factors[axis], mean_of(records, name, measure)
        if found is not None and isinstance(place, int | float):
            groups.setdefault(_label(factors, axis), {})[place] = found
    return {label: points for label, points in groups.items() if len(points) > 1}


def _label(factors: dict[str, object], axis: str) -> str:
    words = {
        "load.prompt_tokens": f"{factors['load.prompt_tokens']} in",
        "load.output_tokens": f"{factors['load.output_tokens']} out",
        "load.hit_percent": f"{factors['load.hit_percent']} % cached",
        "load.turns": f"{factors['load.turns']} turns" if factors["load.turns"] != 1 else "",
        "load.concurrency": f"{factors['load.concurrency']} at once"
        if factors["load.kind"] == Load.CLOSED
        else "",
        "load.rate_per_s": f"{factors['load.rate_per_s']}/s" if factors["load.kind"] == Load.POISSON else "",
        "engine.url": str(factors.get("engine.url", "")),
    }
    return ", ".join(word for path, word in words.items() if word and path != axis)


def _lines(
    name: str, title: str, axis: str, height: str, groups: dict[str, dict[float, Interval]], scale: float
) -> LineFigure:
    places = tuple(sorted({place for points in groups.values() for place in points}))

    def column(points: dict[float, Interval], end: str) -> tuple[float | None, ...]:
        found = [None if place not in points else getattr(points[place], end) for place in places]
        return tuple(None if value is None else scale * value for value in found)

    lines = tuple(
        Line(
            label=label,
            values=column(points, "estimate"),
            low=column(points, "low"),
            high=column(points, "high"),
        )
        for label, points in groups.items()
    )
    return LineFigure(name=name, title=title, axis=axis, value_axis=height, places=places, lines=lines)


def _floor_figure(cells: Sequence[str], found: Sequence[Share]) -> list[AnyFigure]:
    bars = tuple(
        Bar(
            label=f"{share.arm}, {share.phase}",
            value=100 * share.share.estimate,
            low=None if share.share.low is None else 100 * share.share.low,
            high=None if share.share.high is None else 100 * share.share.high,
        )
        for share in _in_order(cells, found)
    )
    if not bars:
        return []
    axis = "least possible time / measured time (%)"
    return [BarFigure(name="shares", title="How close to the machine's floor", axis=axis, bars=bars)]


def _conclusion(cells: Sequence[str], records: Sequence[TrialRecord], found: Sequence[Share]) -> str:
    parts = []
    rates = [(name, rate) for name in cells if (rate := mean_of(records, name, "full_output_tokens_per_s"))]
    if rates:
        name, best = max(rates, key=lambda pair: pair[1].estimate)
        parts.append(f"The highest throughput is {best.words('.3g')} output tokens/s, in {name}.")
    for phase in Phase:
        own = [share for share in found if share.phase is phase]
        if own:
            top = max(own, key=lambda share: share.share.estimate)
            parts.append(
                f"The closest {phase} to its floor is {top.arm} with {top.share.words('.0f', scale=100)} % "
                f"(bound by {top.ceiling})."
            )
    if not found:
        parts.append(f"{_why_no_floor(records)}, so no share of a floor is told.")
    parts += [
        f"In {name} the client itself sent a request {late:.2g} s after it was due, so its arrivals are not those of "
        "the rate that was asked."
        for name in cells
        if (late := _too_late(records, name)) is not None
    ]
    unsteady = [name for name in cells if _unsteady(records, name)]
    if unsteady:
        parts.append(f"Not steady in some trial: {', '.join(unsteady)}.")
    return " ".join(parts)


def _why_no_floor(records: Sequence[TrialRecord]) -> str:
    measured = {name for record in records for name, value in record.measures.items() if value is not None}
    if "ceiling_flop_per_s" not in measured:
        return "No ceiling was measured"
    if not {"prefill_flop", "decode_flop"} & measured:
        return (
            "Ceilings were measured, but the account of the work does not fit this model, or the server does not "
            "count cached tokens"
        )
    return "No seed has both a load and the ceilings yet"


def _too_late(records: Sequence[TrialRecord], arm: str) -> float | None:
    """The most that the client was late in a cell, where that is more than `LATE` of the mean gap between arrivals."""
    own = [record for record in records if record.arm == arm]
    late = max(float(record.measures.get("late_max_s") or 0) for record in own)
    return late if late * number(own[0].factors, "load.rate_per_s") > LATE else None


def _factors(cells: Sequence[str], records: Sequence[TrialRecord]) -> list[tuple[str, dict[str, object]]]:
    first = {record.arm: dict[str, object](record.factors) for record in reversed(records)}
    return [(name, first[name]) for name in cells if name != AGAIN]


def _in_order(cells: Sequence[str], found: Sequence[Share]) -> list[Share]:
    places = {name: place for place, name in enumerate(cells)}
    return sorted((share for share in found if share.arm in places), key=lambda share: places[share.arm])


def _steady(own: Sequence[TrialRecord]) -> str:
    told = [record.measures.get("steady") for record in own if record.measures.get("steady") is not None]
    return f"{sum(value is True for value in told)} of {len(told)}" if told else "too few requests"


def _unsteady(records: Sequence[TrialRecord], arm: str) -> bool:
    return any(record.arm == arm and record.measures.get("steady") is False for record in records)
