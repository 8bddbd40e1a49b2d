"""The oldest items only, as many as make room: the part that is kept in its own words fits itself to the window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from serving.assembler.compaction.policy import CompactionPolicy, Strategy
from serving.assembler.compaction.records import CountTokens, NoCompactionReason, Replacement
from serving.assembler.compaction.strategies.query_aware_sources import QueryAwareSources
from serving.assembler.compaction.strategy import Asked, Situation, Written, by_scope
from serving.assembler.compaction.survey import Eligible


@dataclass(frozen=True, slots=True)
class AdaptiveWindow:
    """One batch of facts for the oldest items; later ones wait for the next time the threshold is passed.

    Rare and large batches, since each one breaks the prompt's prefix at its place.
    """

    name: Strategy = Strategy.ADAPTIVE_WINDOW
    version: str = "1"
    _facts: QueryAwareSources = field(default_factory=QueryAwareSources)

    def groups(self, eligible: Sequence[Eligible], situation: Situation) -> tuple[tuple[Eligible, ...], ...]:
        # What the summary itself will take has to be freed too.
        needed = situation.excess + situation.policy.target_tokens
        freed = accumulate(one.tokens for one in eligible)
        enough = next((index for index, tokens in enumerate(freed, 1) if tokens >= needed), len(eligible))
        return by_scope(eligible[:enough])

    def ask(self, group: Sequence[Eligible], room: int, situation: Situation) -> Asked | NoCompactionReason:
        return self._facts.ask(group, room, situation)

    def write(
        self, replacement: Replacement, answers: Sequence[str], policy: CompactionPolicy, count: CountTokens
    ) -> Written:
        return self._facts.write(replacement, answers, policy, count)
