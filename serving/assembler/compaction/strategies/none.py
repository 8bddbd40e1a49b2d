"""No compaction: what does not fit ends in a hand-off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serving.assembler.compaction.policy import CompactionPolicy, Strategy
from serving.assembler.compaction.records import CountTokens, NoCompactionReason, Replacement
from serving.assembler.compaction.strategy import Asked, Situation, Written
from serving.assembler.compaction.survey import Eligible
from serving.errors import UsageError


@dataclass(frozen=True, slots=True)
class NoneAtAll:
    """Covers nothing."""

    name: Strategy = Strategy.NONE
    version: str = "1"

    def groups(self, eligible: Sequence[Eligible], situation: Situation) -> tuple[tuple[Eligible, ...], ...]:
        return ()

    def ask(self, group: Sequence[Eligible], room: int, situation: Situation) -> Asked | NoCompactionReason:
        return NoCompactionReason.STRATEGY_NONE

    def write(
        self, replacement: Replacement, answers: Sequence[str], policy: CompactionPolicy, count: CountTokens
    ) -> Written:
        raise UsageError("The strategy 'none' covers nothing, so it has nothing to write.")
