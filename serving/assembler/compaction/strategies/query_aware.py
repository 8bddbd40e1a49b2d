"""Everything in one summary, for what the user asked last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from serving.assembler.compaction.policy import CompactionPolicy, Strategy
from serving.assembler.compaction.records import CountTokens, Form, NoCompactionReason, Replacement
from serving.assembler.compaction.strategy import Asked, Situation, Written, all_sources, by_scope, questions
from serving.assembler.compaction.survey import Eligible
from serving.assembler.compaction.writing import prose

_WORDING: Final = """\
You shorten a part of the log of an agent's work for the agent itself, which will no longer see that part.
The text in the query tag is what the user wants now. Keep what serves it; of the rest keep rules, decisions \
and open work, and nothing more."""


@dataclass(frozen=True, slots=True)
class QueryAware:
    """One summary for all that is covered, written for the last user turn."""

    name: Strategy = Strategy.QUERY_AWARE
    version: str = "1"

    def groups(self, eligible: Sequence[Eligible], situation: Situation) -> tuple[tuple[Eligible, ...], ...]:
        return by_scope(eligible)

    def ask(self, group: Sequence[Eligible], room: int, situation: Situation) -> Asked | NoCompactionReason:
        tasks = questions(
            all_sources(group),
            room,
            situation,
            form=Form.PROSE,
            wording=_WORDING,
            query=situation.query_for(group),
        )
        return Asked(tasks) if isinstance(tasks, tuple) else tasks

    def write(
        self, replacement: Replacement, answers: Sequence[str], policy: CompactionPolicy, count: CountTokens
    ) -> Written:
        return prose(replacement, answers, policy)
