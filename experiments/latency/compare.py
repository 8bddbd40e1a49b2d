"""Two saved runs side by side: the same cells, paired by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import BaseModel, ConfigDict, JsonValue

from experiments.framework import PairedEffect, Table, TrialRecord, by_cluster, paired_effect
from experiments.framework.arms import canonical
from experiments.framework.records import RunInfo, read_records, read_run
from experiments.framework.statistics import SEEDS_FOR_INTERVAL, cluster_means
from experiments.latency.analysis import TIMES
from experiments.latency.cells import CEILINGS
from serving.errors import UsageError

STUDY: Final = "latency"


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
    """What of the runs' base, engines, machines and code is not the same: the treatment, or what spoils it."""


def compare_runs(first: Path, second: Path) -> Comparison:
    """Compare the cells that both runs have, by their load and not by their name.

    Raises: UsageError for a folder that is no latency run, and for two runs without a common cell and seed.
    """
    sides = (_Side.read(first), _Side.read(second))
    # Two servers are compared whatever their addresses; as soon as one run has several, addresses tell them apart.
    with_url = any(side.several for side in sides)
    cells = [side.cells(with_url=with_url) for side in sides]
    one, other = cells
    common = [load for load in one if load in other]
    differences = tuple(
        difference
        for load in common
        for measure, _, _ in TIMES
        if (difference := _difference(sides, one[load], other[load], measure)) is not None
    )
    if not differences:
        raise UsageError(
            f"{first} and {second} share no cell and seed: run both with the same lengths and loads to compare them."
        )
    told = [side.told for side in sides]
    return Comparison(
        first=str(first),
        second=str(second),
        differences=differences,
        only_first=tuple(name for load, name in one.items() if load not in other),
        only_second=tuple(name for load, name in other.items() if load not in one),
        differing={
            path: (told[0].get(path), told[1].get(path))
            for path in sorted({*told[0], *told[1]})
            if told[0].get(path) != told[1].get(path) and not path.startswith("load.")
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
        note="Seconds, per-second rates and joules, paired by seed; five seeds or more give an interval.",
    )


class _Side:
    def __init__(self, told: Mapping[str, JsonValue], records: Sequence[TrialRecord]) -> None:
        self.told = told
        self.records = records
        self.several = len({record.factors.get("engine.url") for record in records}) > 1

    def cells(self, *, with_url: bool) -> dict[str, str]:
        """Load → name of the arm."""
        return {
            _load(record, with_url=with_url): record.arm for record in self.records if record.arm != CEILINGS
        }

    @staticmethod
    def read(folder: Path) -> _Side:
        info = read_run(folder)
        identity = info.identity
        if identity.study != STUDY:
            raise UsageError(
                f"{folder} holds study {identity.study!r}; `ctxlab bench` makes runs of {STUDY!r}."
            )
        records = [record for record in read_records(folder, with_exchanges=False) if record.scored]
        return _Side({**identity.base, **_surroundings(info)}, records)


def _surroundings(info: RunInfo) -> dict[str, JsonValue]:
    """What really served and measured, by name; the values of several engines or sessions as a list."""
    facts = [*(environment.facts for environment in info.environments.values())]
    found = {name: [one[name] for one in facts if name in one] for fact in facts for name in fact}
    found |= {
        "code": [session.code.revision for session in info.sessions],
        "platform": [session.platform for session in info.sessions],
    }
    alone = {
        name: list({canonical(value): value for value in values}.values()) for name, values in found.items()
    }
    return {name: values[0] if len(values) == 1 else values for name, values in alone.items()}


def _load(record: TrialRecord, *, with_url: bool) -> str:
    """What makes two cells the same."""
    kept = ("load.", "harness.", "engine.url") if with_url else ("load.", "harness.")
    chosen = {path: value for path, value in record.factors.items() if path.startswith(kept)}
    return repr(sorted(chosen.items()))


def _difference(sides: tuple[_Side, _Side], cell: str, same: str, measure: str) -> Difference | None:
    one, other = by_cluster(sides[0].records, cell, measure), by_cluster(sides[1].records, same, measure)
    both = [cluster for cluster in one if cluster in other]
    if not both:
        return None
    return Difference(
        cell=cell,
        measure=measure,
        first=float(cluster_means({cluster: one[cluster] for cluster in both}).mean()),
        second=float(cluster_means({cluster: other[cluster] for cluster in both}).mean()),
        effect=paired_effect(other, one, np.random.default_rng(0)),
    )


def _percent(difference: Difference) -> str:
    if not difference.first:
        return "–"
    scale = 100 / difference.first
    if difference.effect.clusters < SEEDS_FOR_INTERVAL:
        return f"{scale * difference.effect.interval.estimate:+.1f}"
    return difference.effect.interval.words("+.1f", scale=scale)
