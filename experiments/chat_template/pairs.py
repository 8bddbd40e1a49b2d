"""Arms beside each other, prompt by prompt: right answers by exact tests, lost tokens by exact counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from experiments.chat_template.names import LATE_SYSTEM, REMINDER_HEAD, TOOL_ROLE
from experiments.framework import Arm, TrialRecord, by_cluster
from experiments.framework.arms import NULL_REBUILD
from experiments.framework.proportions import PairedProportion, paired_proportion
from experiments.framework.statistics import Floats, Interval, bounded, holm

LEVEL: Final = 0.05


@dataclass(frozen=True)
class Compared:
    """Right answers of an arm against another, one pair a prompt: the other arm is the first of the pair."""

    arm: str
    against: str
    right: PairedProportion
    adjusted: float
    """p after Holm, over all pairs of arms."""
    detectable: float | None
    """The smallest true change that this run would have found; None: not even a change in every prompt."""

    @property
    def found(self) -> bool:
        """Whether the two differ beyond chance."""
        return self.adjusted < LEVEL


def compare(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> tuple[Compared, ...]:
    """Every arm but the null against the base, and the late system message against its words at the head."""
    asked = [(arm.name, TOOL_ROLE) for arm in arms if arm.name not in (TOOL_ROLE, NULL_REBUILD)]
    asked.append((LATE_SYSTEM, REMINDER_HEAD))
    shares = {name: by_cluster(records, name, "success") for pair in asked for name in pair}
    paired = {(arm, other): paired_proportion(shares[other], shares[arm]) for arm, other in asked}
    family = {names: right for names, right in paired.items() if right is not None}
    adjusted = holm({names: right.p_value for names, right in family.items()})
    return tuple(
        Compared(
            arm=names[0],
            against=names[1],
            right=right,
            adjusted=adjusted[names],
            detectable=right.detectable(comparisons=len(family)),
        )
        for names, right in family.items()
    )


def lost_share(records: Sequence[TrialRecord], arm: str, *, against: str | None = None) -> Interval | None:
    """Lost over all prompt tokens when each prompt's right turn is sent in the arm's way; a bootstrap over prompts.

    With `against`, the difference to that arm, over the prompts that both have.
    """
    names = (arm,) if against is None else (arm, against)
    columns = [
        by_cluster(records, name, measure)
        for name in names
        for measure in ("fixed_lost_tokens", "fixed_prompt_tokens")
    ]
    both = sorted(set.intersection(*(set(column) for column in columns)))
    if not both:
        return None
    rows = np.array([[np.mean(column[cluster]) for column in columns] for cluster in both])
    return bounded(rows, _share if against is None else _share_difference)


def _share(means: Floats) -> Floats:
    share: Floats = means[:, 0] / means[:, 1]
    return share


def _share_difference(means: Floats) -> Floats:
    difference: Floats = means[:, 0] / means[:, 1] - means[:, 2] / means[:, 3]
    return difference
