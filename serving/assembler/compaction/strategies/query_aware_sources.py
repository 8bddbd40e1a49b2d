"""Single facts for what the user asked last, each with the ids of the log entries that it is from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from serving.assembler.compaction.policy import CompactionPolicy, Strategy
from serving.assembler.compaction.records import CountTokens, Form, NoCompactionReason, Replacement
from serving.assembler.compaction.strategy import Asked, Situation, Written, all_sources, by_scope, questions
from serving.assembler.compaction.survey import Eligible
from serving.assembler.compaction.writing import facts

_WORDING: Final = """\
You shorten a part of the log of an agent's work for the agent itself, which will no longer see that part.
The text in the query tag is what the user wants now. Keep what serves it; of the rest keep rules, decisions \
and open work, and nothing more.
Write one fact a line, in this form, with the labels of all texts that the fact is from:
- the fact [s1, s4]"""


@dataclass(frozen=True, slots=True)
class QueryAwareSources:
    """A list of facts; one that names no source, or a source that does not hold it, is refused."""

    name: Strategy = Strategy.QUERY_AWARE_SOURCES
    version: str = "1"

    def groups(self, eligible: Sequence[Eligible], situation: Situation) -> tuple[tuple[Eligible, ...], ...]:
        return by_scope(eligible)

    def ask(self, group: Sequence[Eligible], room: int, situation: Situation) -> Asked | NoCompactionReason:
        tasks = questions(
            all_sources(group),
            room,
            situation,
            form=Form.FACTS,
            wording=_WORDING,
            query=situation.query_for(group),
        )
        return Asked(tasks) if isinstance(tasks, tuple) else tasks

    def write(
        self, replacement: Replacement, answers: Sequence[str], policy: CompactionPolicy, count: CountTokens
    ) -> Written:
        return facts(replacement, answers, policy)
