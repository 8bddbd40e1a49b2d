"""Every tool result on its own, without knowing the task; the calls stay as they were made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from serving.assembler.compaction.policy import CompactionPolicy, Strategy
from serving.assembler.compaction.records import (
    CountTokens,
    Form,
    NoCompactionReason,
    Replacement,
    Source,
    SummaryTask,
)
from serving.assembler.compaction.strategy import Asked, Situation, Written, questions
from serving.assembler.compaction.survey import Eligible
from serving.assembler.compaction.writing import cited, evidence, ground
from serving.assembler.kinds import Kind

WORTH_ASKING: Final = 64
"""Tokens of a result below which it stays in its own words."""

_WORDING: Final = """\
You shorten the result of one tool call for a reader who has not decided yet what to do with it.
Say what it contains, those facts first that would be missed most."""


@dataclass(frozen=True, slots=True)
class PerResult:
    """One summary a tool step, so that it stands where the step stood; one question a long result."""

    name: Strategy = Strategy.PER_RESULT
    version: str = "1"

    def groups(self, eligible: Sequence[Eligible], situation: Situation) -> tuple[tuple[Eligible, ...], ...]:
        return tuple(
            (one,) for one in eligible if any(_asked(one, source, situation) for source in one.sources)
        )

    def ask(self, group: Sequence[Eligible], room: int, situation: Situation) -> Asked | NoCompactionReason:
        (one,) = group
        asked = [source for source in one.sources if _asked(one, source, situation)]
        verbatim = tuple(source for source in one.sources if source not in asked)
        for source in one.sources:
            room -= situation.count(source.text if source in verbatim else _heading(source.id))
        tasks: list[SummaryTask] = []
        for source in asked:
            made = questions([source], room // len(asked), situation, form=Form.PROSE, wording=_WORDING)
            if not isinstance(made, tuple):
                return made
            tasks.extend(made)
        return Asked(tuple(tasks), verbatim)

    def write(
        self, replacement: Replacement, answers: Sequence[str], policy: CompactionPolicy, count: CountTokens
    ) -> Written:
        read = list(evidence(replacement).values())
        parts = [source.text for source in replacement.verbatim]
        unverified: list[str] = []
        heading = ""
        for task, answer in zip(replacement.tasks, answers, strict=True):
            unverified.extend(ground(answer, read, policy))
            # A result that was read in pieces has one heading.
            if heading != (heading := _heading(task.sources[0].id)):
                parts.append(heading)
            parts.append(answer.strip())
        return Written("\n".join(parts), unverified=tuple(dict.fromkeys(unverified)))


def _asked(one: Eligible, source: Source, situation: Situation) -> bool:
    is_result = one.item.kind is Kind.TOOL_STEP and source.id != one.item.id
    return is_result and situation.count(source.text) >= WORTH_ASKING


def _heading(source_id: str) -> str:
    return f"summary of {cited(source_id)}:"
