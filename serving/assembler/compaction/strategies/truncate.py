"""Leave out, and say so: the honest baseline, which needs no model and keeps nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serving.assembler.compaction.policy import CompactionPolicy, Strategy
from serving.assembler.compaction.records import CountTokens, NoCompactionReason, Replacement
from serving.assembler.compaction.strategy import Asked, Situation, Written, by_scope
from serving.assembler.compaction.survey import Eligible


@dataclass(frozen=True, slots=True)
class Truncate:
    """One short remark for all that is covered; it promises no archive, since nothing here writes one."""

    name: Strategy = Strategy.TRUNCATE
    version: str = "1"

    def groups(self, eligible: Sequence[Eligible], situation: Situation) -> tuple[tuple[Eligible, ...], ...]:
        return by_scope(eligible)

    def ask(self, group: Sequence[Eligible], room: int, situation: Situation) -> Asked | NoCompactionReason:
        text = _remark(len(group))
        return Asked() if situation.count(text) < room else NoCompactionReason.WOULD_NOT_SHRINK

    def write(
        self, replacement: Replacement, answers: Sequence[str], policy: CompactionPolicy, count: CountTokens
    ) -> Written:
        return Written(_remark(len(replacement.covers)))


def _remark(items: int) -> str:
    what = "1 earlier entry is" if items == 1 else f"{items} earlier entries are"
    return f"{what} left out here; nothing more is known of the content."
