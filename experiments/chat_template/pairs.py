"""Arms beside each other, prompt by prompt: right answers by exact tests, lost tokens by exact counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from experiments.chat_template.names import LATE_SYSTEM, NULL, REMINDER_HEAD, TOOL_ROLE
from experiments.framework import Arm, TrialRecord, by_cluster
from experiments.framework.statistics import (
    Floats,
    Interval,
    bounded,
    holm,
    mcnemar_exact,
    smallest_detectable,
)

LEVEL: Final = 0.05


@dataclass(frozen=True)
class Compared:
    """Right answers of an arm against another, one pair a prompt."""

    arm: str
    against: str
    pairs: int
    only_against: int
    """Prompts that the other arm alone got right."""
    only_arm: int
    effect: Interval
    """Share right under the arm minus share right under the other; a bootstrap over prompts."""
    p_value: float
    adjusted: float
    """After Holm, over all pairs of arms."""
    detectable: float | None
    """The smallest true change that this run would have found; None: not even a change in every prompt."""

    @property
    def found(self) -> bool:
        """Whether the two differ beyond chance."""
        return self.adjusted < LEVEL


def compare(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> tuple[Compared, ...]:
    """Every arm but the null against the base, and the late system message against its words at the head."""
    asked = [(arm.name, TOOL_ROLE) for arm in arms if arm.name not in (TOOL_ROLE, NULL)]
    asked.append((LATE_SYSTEM, REMINDER_HEAD))
    shares = {name: by_cluster(records, name, "success") for pair in asked for name in pair}
    paired = [(arm, other, sorted(shares[arm].keys() & shares[other].keys())) for arm, other in asked]
    family = [one for one in paired if one[2]]
    found = []
    for arm, other, both in family:
        changes = np.array([np.mean(shares[arm][c]) - np.mean(shares[other][c]) for c in both])
        only_other, only_arm = int((changes < 0).sum()), int((changes > 0).sum())
        p_value = mcnemar_exact(only_other, only_arm)
        found.append(
            Compared(
                arm=arm,
                against=other,
                pairs=len(both),
                only_against=only_other,
                only_arm=only_arm,
                effect=bounded(changes[:, None]),
                p_value=p_value,
                adjusted=p_value,
                detectable=_detectable(changes, len(family)),
            )
        )
    adjusted = holm({f"{one.arm}/{one.against}": one.p_value for one in found})
    return tuple(replace(one, adjusted=adjusted[f"{one.arm}/{one.against}"]) for one in found)


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


def _detectable(changes: Floats, family: int) -> float | None:
    """The t approximation (`smallest_detectable`), and never less than what the exact test can find at all.

    Where no pair disagrees the approximation is 0, though six pairs have to, all alike, before an exact p of one
    comparison falls below 0.05.
    """
    counts = range(1, len(changes) + 1)
    fewest = next((pairs for pairs in counts if mcnemar_exact(0, pairs) * family < LEVEL), None)
    if fewest is None:
        return None
    return max(smallest_detectable(changes) or 0.0, fewest / len(changes))


def _share(means: Floats) -> Floats:
    share: Floats = means[:, 0] / means[:, 1]
    return share


def _share_difference(means: Floats) -> Floats:
    difference: Floats = means[:, 0] / means[:, 1] - means[:, 2] / means[:, 3]
    return difference
