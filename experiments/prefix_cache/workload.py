"""Records that may be compared, and the means that every table and figure of the study is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from experiments.framework import Arm, CallRecord, TrialRecord, by_cluster
from experiments.framework.statistics import cluster_means
from experiments.framework.trials import total
from experiments.prefix_cache.ceiling import block_size_of, ceilings
from experiments.prefix_cache.tours import Tour, tour_of
from serving.explain.causes import MissCause
from serving.prefix import Cause

CACHED = "reused from the cache"

CAUSE_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        Cause.NEW: "new at the end",
        Cause.DIVERGENCE: "other ids than stored",
        Cause.BLOCK_ROUNDING: "rest of a block",
        Cause.LAST_TOKEN: "last token",
        Cause.SALT: "cached under another salt",
        Cause.EVICTION: "evicted",
    }
)
_NAMED_WORDS: Mapping[str, str] = {
    MissCause.NEW.value: "new at the end",
    MissCause.BRANCHED.value: "nothing alike behind it",
}
"""A proven cause is its own name; what every run has is called as in runs that know no proven causes. Here all calls
are of one conversation, so what has nothing in common behind the first difference was no other one."""
FREE = ("new at the end", "rest of a block", "last token")
"""What an append-only run computes too: shown first, so that what an arm lost stands together."""


@dataclass(frozen=True)
class Workload:
    """The trials of one tour: the same work, so that arms of it can be compared."""

    suffix: str
    """Behind an arm's title where a page shows several tours."""
    arms: tuple[Arm, ...]
    """Those that ran."""
    records: tuple[TrialRecord, ...]

    def label(self, arm: Arm) -> str:
        """The arm in words."""
        return f"{arm.title}{self.suffix}"

    def of(self, arm: str) -> tuple[TrialRecord, ...]:
        """The trials of an arm."""
        return tuple(record for record in self.records if record.arm == arm)

    def mean(self, arm: str, measure: str) -> float | None:
        """Mean of a measure over seeds; None where nothing is known."""
        clusters = by_cluster(self.records, arm, measure)
        return float(cluster_means(clusters).mean()) if clusters else None

    def share(self, arm: str) -> float | None:
        """Cached / prompt tokens over all calls; None where one count is unknown or there is no call."""
        own = [call for record in self.of(arm) for call in record.calls]
        prompts = total(call.prompt_tokens for call in own)
        cached = total(call.cached_tokens for call in own)
        return cached / prompts if prompts and cached is not None else None

    def ceiling(self, arm: str) -> float | None:
        """Mean tokens of a run that its append-only twin reuses; None where the block size is not known."""
        sums: list[int] = []
        for record in self.of(arm):
            size = block_size_of(record)
            bounds = None if size is None else ceilings(record.calls, size)
            if bounds is None:
                return None
            sums.append(sum(bounds))
        return float(np.mean(sums)) if sums else None

    def cached(self, arm: str) -> float | None:
        """Mean tokens of a run that the server reused."""
        sums = [total(call.cached_tokens for call in record.calls) for record in self.of(arm)]
        whole = total(sums)
        return whole / len(sums) if sums and whole is not None else None

    def split(self, arm: str) -> dict[str, float]:
        """Mean tokens of a run by where they went, in words, `CACHED` first; they add up to its prompt tokens.

        By proven cause where every call of the workload has them, else by the predictor's.
        """
        own = self.of(arm)
        named = all(call.named or not call.causes for record in self.records for call in record.calls)
        found: Counter[str] = Counter({CACHED: 0})
        for record in own:
            for call in record.calls:
                found[CACHED] += call.cached_tokens or 0
                found.update(named_tokens(call) if named else _predicted_tokens(call))
        return {words: tokens / len(own) for words, tokens in found.items()}


def named_tokens(call: CallRecord) -> dict[str, int]:
    """A call's computed tokens by proven cause, in words; empty where the run kept none."""
    return {_NAMED_WORDS.get(cause, cause): tokens for cause, tokens in call.named.items()}


def _predicted_tokens(call: CallRecord) -> dict[str, int]:
    return {CAUSE_WORDS.get(cause, cause): tokens for cause, tokens in call.causes.items()}


def workloads(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> tuple[Workload, ...]:
    """The tours that ran, the one without reasoning first; arms without a record are left out."""
    found = []
    for suffix, tours in (("", (Tour.FILES, Tour.TIMED)), (" · thinking", (Tour.THINKING,))):
        own = tuple(record for record in records if tour_of(record.task) in tours)
        ran = tuple(arm for arm in arms if any(record.arm == arm.name for record in own))
        if ran:
            found.append(Workload(suffix, ran, own))
    return tuple(found)


def parts_of(all_workloads: Sequence[Workload]) -> tuple[str, ...]:
    """Every part that any arm has tokens in: reused, what every run computes, then losses, the largest first."""
    sums: Counter[str] = Counter()
    for workload in all_workloads:
        for arm in workload.arms:
            sums.update(workload.split(arm.name))
    lost = sorted(
        (part for part in sums if part not in (CACHED, *FREE) and sums[part]),
        key=lambda part: (-sums[part], part),
    )
    return (CACHED, *(part for part in FREE if sums[part]), *lost)
