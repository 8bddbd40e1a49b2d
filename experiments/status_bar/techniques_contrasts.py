"""Effects over the sixteen runs of the fraction: contrasts within a cluster, and what the clusters say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from experiments.framework import TrialRecord, by_cluster
from experiments.framework.statistics import (
    Floats,
    Interval,
    bounded,
    holm,
    sign_flip_p,
    smallest_detectable,
)
from experiments.status_bar.techniques_design import PAIRS, arm_name, fraction, sign
from serving.assembler.status_bar import Technique

Term = tuple[Technique, ...]
"""One technique: its main effect; two: their interaction."""

MAIN: Final[tuple[Term, ...]] = tuple((technique,) for technique in Technique)
INTERACTIONS: Final[tuple[Term, ...]] = PAIRS


@dataclass(frozen=True)
class Contrast:
    """One term's effect on one measure."""

    clusters: int
    effect: Interval
    """Mean of the eight runs in which the term is +1, minus that of the other eight; a bootstrap over clusters."""
    p_value: float
    """Sign-flip over clusters."""
    adjusted: float
    """After Holm, over the terms that were asked for together."""
    detectable: float | None
    """The smallest true effect that would have been found 8 times in 10; None where nothing varied."""

    @property
    def found(self) -> bool:
        """Whether it is more than chance."""
        return self.effect.excludes_zero and self.adjusted < 0.05


def contrasts(records: Sequence[TrialRecord], measure: str, terms: Sequence[Term]) -> Mapping[Term, Contrast]:
    """The effects of `terms`, over the clusters that have the measure in all sixteen runs; empty without any."""
    runs = _complete(records, measure)
    if not len(runs):
        return {}
    # Repeats are means already, so a cluster counts once.
    per_cluster = {term: runs @ _signs(term) for term in terms}
    p_values = {
        term: sign_flip_p(differences, np.random.default_rng(0)) for term, differences in per_cluster.items()
    }
    adjusted = holm(p_values)
    return {
        term: Contrast(
            clusters=len(differences),
            effect=bounded(differences[:, None]),
            p_value=p_values[term],
            adjusted=adjusted[term],
            detectable=smallest_detectable(differences),
        )
        for term, differences in per_cluster.items()
    }


def incomplete(records: Sequence[TrialRecord], measure: str) -> int:
    """Clusters that have the measure in some run and not in all sixteen: no effect counts them."""
    met = {cluster for arm in _arms() for cluster in by_cluster(records, arm, measure)}
    return len(met) - len(_complete(records, measure))


def _arms() -> list[str]:
    return [arm_name(on) for on in fraction()]


def _complete(records: Sequence[TrialRecord], measure: str) -> Floats:
    """(clusters, 16) means of a measure, in the order of `fraction`."""
    values = [by_cluster(records, arm, measure) for arm in _arms()]
    whole = sorted(set.intersection(*(set(one) for one in values)))
    return np.array([[np.mean(one[cluster]) for one in values] for cluster in whole], dtype=np.float64)


def _signs(term: Term) -> Floats:
    return np.array([sign(term, on) for on in fraction()], dtype=np.float64) / (len(fraction()) / 2)
