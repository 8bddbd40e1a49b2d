"""Two saved runs side by side: the same cells, paired by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import BaseModel, ConfigDict, JsonValue

from experiments.framework import PairedEffect, Table, TrialRecord, by_cluster, paired_effect
from experiments.framework.arms import canonical
from experiments.framework.records import RunInfo, read_records, read_run
from experiments.framework.statistics import SEEDS_FOR_INTERVAL, cluster_means, holm, smallest_detectable
from experiments.latency.analysis import TIMES
from experiments.latency.cells import CEILINGS
from serving.errors import UsageError

STUDY: Final = "latency"
LEVEL: Final = 0.05
"""Of all rows of a comparison together."""

Clusters = dict[str, list[float]]
"""One measure of one cell: seed → values."""


class Difference(BaseModel):
    """One measure of one cell in both runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cell: str
    measure: str
    first: float
    second: float
    effect: PairedEffect
    """Second − first; what is detectable as one of all rows, None below `seeds_needed`."""
    adjusted: float
    """p after Holm, over all rows of the comparison."""

    @property
    def told_apart(self) -> bool:
        """Whether the difference is more than chance, with all rows judged at one level together."""
        return self.adjusted < LEVEL


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
    one, other = (side.cells(with_url=with_url) for side in sides)
    pairs = {
        (one[load], measure): (
            by_cluster(sides[0].records, one[load], measure),
            by_cluster(sides[1].records, other[load], measure),
        )
        for load in one
        if load in other
        for measure, _, _ in TIMES
    }
    shared = {row: pair for row, pair in pairs.items() if pair[0].keys() & pair[1].keys()}
    if not shared:
        raise UsageError(
            f"{first} and {second} share no cell and seed: run both with the same lengths and loads and the same "
            "number of requests to compare them."
        )
    told = [side.told for side in sides]
    return Comparison(
        first=str(first),
        second=str(second),
        differences=_differences(shared),
        only_first=tuple(name for load, name in one.items() if load not in other),
        only_second=tuple(name for load, name in other.items() if load not in one),
        differing={
            path: (told[0].get(path), told[1].get(path))
            for path in sorted({*told[0], *told[1]})
            if told[0].get(path) != told[1].get(path) and not path.startswith("load.")
        },
    )


def seeds_needed(rows: int) -> int:
    """The fewest seeds with which any of so many rows can be told apart: all of them change in one direction.

    The exact sign-flip p of n pairs is at least 2 / 2ⁿ, and Holm multiplies the smallest of all by the rows.
    """
    return next(seeds for seeds in count(1) if rows * 2 / 2**seeds < LEVEL)


def comparison_table(found: Comparison) -> Table:
    """One row a cell and measure: both values, the change in percent, and whether it is more than noise."""
    needed = seeds_needed(len(found.differences))
    rows = tuple(
        (
            difference.cell,
            difference.measure,
            f"{difference.first:.4g}",
            f"{difference.second:.4g}",
            _percent(difference),
            difference.effect.clusters,
            _verdict(difference, needed),
        )
        for difference in found.differences
    )
    return Table(
        title=f"{found.second} against {found.first}",
        columns=("cell", "measure", "first", "second", "change (%)", "seeds", "told apart"),
        rows=rows,
        note=f"Seconds, per-second rates and joules, paired by seed; {SEEDS_FOR_INTERVAL} seeds or more give an "
        f"interval. Told apart: p of the exact sign-flip test below {LEVEL:g} after Holm's correction for all "
        f"{len(rows)} rows, for which {needed} seeds are needed; with fewer than {seeds_needed(1)} no table tells "
        "anything apart. What a run would have found, it would have found 8 times in 10, in the measure's unit.",
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


def _differences(shared: Mapping[tuple[str, str], tuple[Clusters, Clusters]]) -> tuple[Difference, ...]:
    """Every row, by cell and measure, judged as one of all."""
    effects = {
        row: paired_effect(other, one, np.random.default_rng(0)) for row, (one, other) in shared.items()
    }
    adjusted = holm({row: p for row, effect in effects.items() if (p := effect.p_value) is not None})
    found = []
    for (cell, measure), (one, other) in shared.items():
        effect = effects[cell, measure]
        both = [cluster for cluster in one if cluster in other]
        first, second = (cluster_means({cluster: side[cluster] for cluster in both}) for side in (one, other))
        detectable = smallest_detectable(second - first, alpha=LEVEL / len(shared))
        if len(both) < seeds_needed(len(shared)):
            detectable = None
        found.append(
            Difference(
                cell=cell,
                measure=measure,
                first=float(first.mean()),
                second=float(second.mean()),
                effect=effect.model_copy(update={"detectable": detectable}),
                adjusted=adjusted[cell, measure],
            )
        )
    return tuple(found)


def _verdict(difference: Difference, needed: int) -> str:
    if difference.told_apart:
        return "yes"
    if difference.effect.clusters < needed:
        return f"no: {needed} seeds are needed"
    return f"no: {difference.effect.would_have_found('.2g')}"


def _percent(difference: Difference) -> str:
    if not difference.first:
        return "–"
    scale = 100 / difference.first
    if difference.effect.clusters < SEEDS_FOR_INTERVAL:
        return f"{scale * difference.effect.interval.estimate:+.1f}"
    return difference.effect.interval.words("+.1f", scale=scale)
