"""A checkpoint with fixed sections, which every later compaction extends and never writes anew.

The model reads the earlier checkpoint and writes down only what is new. Code carries the earlier lines over, in
their own words, so nothing drifts from cycle to cycle. Test status and next step are the latest ones; all other
sections grow, and a later line overrules an earlier one. Over its bound a checkpoint gives up its oldest
finished work, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from serving.assembler.compaction.answers import AnswerRefusedError, cited_lines, sections
from serving.assembler.compaction.policy import CompactionPolicy, Strategy
from serving.assembler.compaction.records import (
    CountTokens,
    Form,
    NoCompactionReason,
    RefusalReason,
    Replacement,
    Source,
)
from serving.assembler.compaction.strategy import Asked, Situation, Written, all_sources, by_scope, questions
from serving.assembler.compaction.survey import Eligible
from serving.assembler.compaction.writing import bullet, citable, evidence, ground_line
from serving.assembler.payloads import Claim


class Section(StrEnum):
    """The sections in their order; the values are the headings."""

    GOAL = "Goal"
    COMPLETED = "Completed work"
    EVIDENCE = "Verified evidence"
    REJECTED = "Rejected approaches"
    RISKS = "Open risks"
    APPROVALS = "Pending approvals"
    ARTIFACTS = "Artifacts changed"
    TESTS = "Test status"
    NEXT_STEP = "Exact next step"


_LATEST_ONLY: Final = frozenset({Section.TESTS, Section.NEXT_STEP})
_GIVES_UP: Final = (Section.COMPLETED, Section.EVIDENCE)
_LEFT_OUT: Final = "earlier lines of this section are left out; they were from entries between these"

_WORDING: Final = "\n".join(
    (
        "You keep the checkpoint of an agent's work. The agent will go on from it and will no longer see the "
        "texts in the source tags.",
        "If there is an earlier checkpoint, its lines are kept by themselves: write only what is new or has "
        "changed. The text in the query tag is what the user wants now.",
        "Write all of these headings in this order, under each the facts of it, or the word none:",
        *(f"## {section.value}" for section in Section),
        "Under 'Rejected approaches' give the reason too, under 'Artifacts changed' the path and the hash.",
        "Write one fact a line, in this form, with the labels of all texts that the fact is from:",
        "- the fact [s1, s4]",
    )
)


@dataclass(frozen=True, slots=True)
class AnchoredCheckpoint:
    """One checkpoint a scope; the next one covers it together with what came after."""

    name: Strategy = Strategy.ANCHORED_CHECKPOINT
    version: str = "1"

    def groups(self, eligible: Sequence[Eligible], situation: Situation) -> tuple[tuple[Eligible, ...], ...]:
        # An earlier checkpoint has nothing to read, so alone it makes no group.
        return by_scope(eligible)

    def ask(self, group: Sequence[Eligible], room: int, situation: Situation) -> Asked | NoCompactionReason:
        texts = [one.earlier.text for one in group if one.earlier is not None]
        earlier = None
        if texts:
            first = next(one.item.id for one in group if one.earlier is not None)
            earlier = Source(id=first, text="\n".join(texts))
        tasks = questions(
            all_sources(group),
            room - situation.count(earlier.text if earlier is not None else _rendered(())),
            situation,
            form=Form.CHECKPOINT,
            wording=_WORDING,
            query=situation.query_for(group),
            earlier=earlier,
        )
        return Asked(tasks) if isinstance(tasks, tuple) else tasks

    def write(
        self, replacement: Replacement, answers: Sequence[str], policy: CompactionPolicy, count: CountTokens
    ) -> Written:
        new, unverified = _new_claims(replacement, answers, policy)
        if not new:
            raise AnswerRefusedError(RefusalReason.WRONG_FORM, "every section of the answer is empty")
        earlier = [claim for summary in replacement.extends for claim in summary.claims]
        claims = _bounded(_merged(earlier, new), replacement.most_tokens, count)
        carried = [word for summary in replacement.extends for word in summary.unverified]
        return Written(_rendered(claims), claims, tuple(dict.fromkeys([*carried, *unverified])))


def _new_claims(
    replacement: Replacement, answers: Sequence[str], policy: CompactionPolicy
) -> tuple[list[Claim], list[str]]:
    """The checked lines of all answers with their sections, and the words in them that stand in no source."""
    read = evidence(replacement)
    for claim in (claim for summary in replacement.extends for claim in summary.claims):
        # An entry that was compacted before is known by what the earlier checkpoint says of it.
        for source in claim.sources:
            read[source] = f"{read[source]}\n{claim.text}" if source in read else claim.text
    claims: list[Claim] = []
    unverified: list[str] = []
    for task, answer in zip(replacement.tasks, answers, strict=True):
        known = {**{source: source for source in read}, **citable(task)}
        for title, text in sections(answer, [section.value for section in Section]).items():
            for line in cited_lines(text, known):
                unverified.extend(ground_line(line, read, policy))
                claims.append(Claim(text=line.text, sources=line.sources, section=title))
    return claims, unverified


def _merged(earlier: Sequence[Claim], new: Sequence[Claim]) -> list[Claim]:
    """Earlier lines first, each text once in a section; of some sections only the latest lines."""
    renewed = {claim.section for claim in new if claim.section in _LATEST_ONLY}
    merged = {
        (claim.section, claim.text): claim
        for claim in (*new[::-1], *earlier[::-1])
        if claim.section not in renewed or claim in new
    }
    return list(merged.values())[::-1]


def _bounded(claims: list[Claim], most: int, count: CountTokens) -> tuple[Claim, ...]:
    """`claims` without their oldest finished work, as far as the bound asks for it."""
    while count(_rendered(claims)) > most:
        oldest = next(
            (
                claim
                for section in _GIVES_UP
                for claim in claims
                if claim.section == section and claim.text != _LEFT_OUT
            ),
            None,
        )
        if oldest is None:
            raise AnswerRefusedError(
                RefusalReason.TOO_LONG,
                f"the checkpoint has {count(_rendered(claims))} tokens where {most} are allowed",
            )
        claims = _without(claims, oldest)
    return tuple(claims)


def _without(claims: Sequence[Claim], gone: Claim) -> list[Claim]:
    """`claims` with the remark that stands for lines left out in the place of `gone`, once a section."""
    before = [claim for claim in claims if claim.section == gone.section and claim.text == _LEFT_OUT]
    first = before[0].sources[0] if before else gone.sources[0]
    remark = Claim(text=_LEFT_OUT, sources=_ends(first, gone.sources[-1]), section=gone.section)
    return [remark if claim is gone else claim for claim in claims if claim not in before]


def _ends(first: str, last: str) -> tuple[str, ...]:
    return (first,) if first == last else (first, last)


def _rendered(claims: Sequence[Claim]) -> str:
    parts: list[str] = []
    for section in Section:
        lines = [bullet(claim) for claim in claims if claim.section == section]
        parts.append("\n".join([f"## {section.value}", *(lines or ["none"])]))
    return "\n".join(parts)
