"""Two saved runs side by side: the same cells, paired by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import BaseModel, ConfigDict, JsonValue

from experiments.framework import PairedEffect, Table, TrialRecord, by_cluster, paired_effect
from experiments.framework.records import read_records, read_run
from experiments.framework.statistics import SEEDS_FOR_INTERVAL
from experiments.latency.cells import CEILINGS
from serving.errors import UsageError

STUDY: Final = "latency"
COMPARED: Final = (
    "ttft_p50_s",
    "ttft_p95_s",
    "itl_p95_s",
    "tpot_mean_s",
    "latency_p50_s",
    "full_requests_per_s",
    "full_output_tokens_per_s",
)


class Difference(BaseModel):
    """One measure of one cell in both runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cell: str
    measure: str
    first: float
    second: float
    effect: PairedEffect
    """Second − first."""

    @property
    def told_apart(self) -> bool:
        """Whether the interval leaves zero out; never with too few seeds for one."""
        return self.effect.clusters >= SEEDS_FOR_INTERVAL and self.effect.interval.excludes_zero


class Comparison(BaseModel):
    """What two runs have in common, and what cannot be compared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    first: str
    second: str
    differences: tuple[Difference, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    differing: dict[str, tuple[JsonValue, JsonValue]]
    """What of the runs' own base is not the same: that is the treatment."""


def compare_runs(first: Path, second: Path) -> Comparison:
    """Compare the cells that both runs have, by their load and not by their name.

    Raises: UsageError for a folder that is no latency run, and for two runs without a common cell and seed.
    """
    sides = (_Side.read(first), _Side.read(second))
    one, other = (side.cells for side in sides)
    common = [load for load in one if load in other]
    differences = tuple(
        difference
        for load in common
        for measure in COMPARED
        if (difference := _difference(sides, load, measure)) is not None
    )
    if not differences:
        raise UsageError(
            f"{first} and {second} share no cell and seed: run both with the same lengths and loads to compare them."
        )
    bases = [side.base for side in sides]
    return Comparison(
        first=str(first),
        second=str(second),
        differences=differences,
        only_first=tuple(name for load, name in one.items() if load not in other),
        only_second=tuple(name for load, name in other.items() if load not in one),
        differing={
            path: (bases[0].get(path), bases[1].get(path))
            for path in sorted({*bases[0], *bases[1]})
            if bases[0].get(path) != bases[1].get(path) and not path.startswith("load.")
        },
    )


def comparison_table(found: Comparison) -> Table:
    """One row a cell and measure: both values, the change in percent, and whether it is more than noise."""
    rows = tuple(
        (
            difference.cell,
            difference.measure,
            f"{difference.first:.4g}",
            f"{difference.second:.4g}",
            _percent(difference),
            difference.effect.clusters,
            "yes" if difference.told_apart else "no",
        )
        for difference in found.differences
    )
    return Table(
        title=f"{found.second} against {found.first}",
        columns=("cell", "measure", "first", "second", "change (%)", "seeds", "told apart"),
        rows=rows,
        note="Seconds and per-second rates, paired by seed; five seeds or more give an interval.",
    )


class _Side:
    def __init__(self, base: Mapping[str, JsonValue], records: Sequence[TrialRecord]) -> None:
        self.base = base
        self.records = records
        several = len({record.factors.get("engine.url") for record in records}) > 1
        self.cells = {
            _load(record, with_url=several): record.arm for record in records if record.arm != CEILINGS
        }

    @staticmethod
    def read(folder: Path) -> _Side:
        identity = read_run(folder).identity
        if identity.study != STUDY:
            raise UsageError(
                f"{folder} holds study {identity.study!r}; `ctxlab bench` makes runs of {STUDY!r}."
            )
        records = [record for record in read_records(folder, with_exchanges=False) if record.scored]
        return _Side(identity.base, records)


def _load(record: TrialRecord, *, with_url: bool) -> str:
    """What makes two cells the same; two servers are compared, but those of one run are kept apart."""
    kept = ("load.", "harness.", "engine.url") if with_url else ("load.", "harness.")
    chosen = {path: value for path, value in record.factors.items() if path.startswith(kept)}
    return repr(sorted(chosen.items()))


def _difference(sides: tuple[_Side, _Side], load: str, measure: str) -> Difference | None:
    one, other = (by_cluster(side.records, side.cells[load], measure) for side in sides)
    both = [cluster for cluster in one if cluster in other]
    if not both:
        return None
    return Difference(
        cell=sides[0].cells[load],
        measure=measure,
        first=float(np.mean([np.mean(one[cluster]) for cluster in both])),
        second=float(np.mean([np.mean(other[cluster]) for cluster in both])),
        effect=paired_effect(other, one, np.random.default_rng(0)),
    )


def _percent(difference: Difference) -> str:
    if not difference.first:
        return "–"
    scale = 100 / difference.first
    if difference.effect.clusters < SEEDS_FOR_INTERVAL:
        return f"{scale * difference.effect.interval.estimate:+.1f}"
    return difference.effect.interval.words("+.1f", scale=scale)
