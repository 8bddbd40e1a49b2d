"""Results as shares of the machine's floor, and the check that none of them is impossible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from experiments.framework.statistics import Interval, bounded
from experiments.framework.trials import TrialRecord
from experiments.latency.cells import CEILINGS
from experiments.latency.floors import Ceiling, Work
from experiments.latency.roofline import Rates
from serving.errors import InequalityError


class Phase(StrEnum):
    """What a floor is of."""

    PREFILL = "prefill"
    DECODE = "decode"


MEASURED: Final[Mapping[Phase, str]] = {Phase.PREFILL: "ttft_mean_s", Phase.DECODE: "tpot_mean_s"}
"""The measure that holds the time of a phase."""


@dataclass(frozen=True)
class Share:
    """How much of a phase's time the machine needs at its best."""

    arm: str
    phase: Phase
    ceiling: Ceiling
    floor_s: float
    measured_s: float
    share: Interval
    """Floor over measured, resampled over seeds; without bounds below five seeds."""
    least: float
    """The smallest share of any seed."""

    @property
    def impossible(self) -> bool:
        """Whether the share is above 1 beyond its interval; with too few seeds for one, in every seed."""
        return (self.least if self.share.low is None else self.share.low) > 1


def shares(records: Sequence[TrialRecord]) -> tuple[Share, ...]:
    """Every cell's prefill and decode against the ceilings of the same seed; empty where none were measured."""
    ceilings = {
        record.spec.cluster: Rates(flop_per_s=rate, bytes_per_s=bandwidth)
        for record in records
        if record.arm == CEILINGS
        and (rate := _number(record, "ceiling_flop_per_s")) is not None
        and (bandwidth := _number(record, "ceiling_bytes_per_s")) is not None
    }
    found = []
    for arm in dict.fromkeys(record.arm for record in records):
        own = [record for record in records if record.arm == arm and record.spec.cluster in ceilings]
        for phase in Phase:
            share = _share(arm, phase, own, ceilings)
            if share is not None:
                found.append(share)
    return tuple(found)


def check_shares(records: Sequence[TrialRecord]) -> None:
    """Raise `InequalityError` for the first impossible share, naming the ceiling that it breaks."""
    for share in shares(records):
        if share.impossible:
            raise InequalityError(
                f"Self-check: {share.phase} of {share.arm} took {1e3 * share.measured_s:.3g} ms, and the "
                f"{share.ceiling} that was measured here allows no less than {1e3 * share.floor_s:.3g} ms",
                expected="at most 100 % of the floor",
                got=f"{share.share.words('.0f', scale=100)} %, so the {share.ceiling} ceiling is too low or the work "
                "is counted too high",
            )


def _share(arm: str, phase: Phase, own: Sequence[TrialRecord], ceilings: Mapping[str, Rates]) -> Share | None:
    rows, by_rate = [], 0
    for record in own:
        flop, size = _number(record, f"{phase}_flop"), _number(record, f"{phase}_bytes")
        measured = _number(record, MEASURED[phase])
        if flop is None or size is None or not measured:
            continue
        work, rates = Work(flop, size), ceilings[record.spec.cluster]
        by_rate += work.bound_by(rates) is Ceiling.RATE
        rows.append((work.floor_s(rates), measured))
    if not rows:
        return None
    table = np.asarray(rows, dtype=np.float64)
    floor, measured_s = (float(value) for value in table.mean(axis=0))
    return Share(
        arm=arm,
        phase=phase,
        ceiling=Ceiling.RATE if 2 * by_rate >= len(rows) else Ceiling.BANDWIDTH,
        floor_s=floor,
        measured_s=measured_s,
        share=bounded(table, lambda means: means[:, 0] / means[:, 1]),
        least=float((table[:, 0] / table[:, 1]).min()),
    )


def _number(record: TrialRecord, name: str) -> float | None:
    value = record.measures.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
