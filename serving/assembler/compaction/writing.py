"""From checked answers to the text of a summary: prose as it came, or facts with the ids of their sources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from serving.assembler.compaction.answers import AnswerRefusedError, Line, cited_lines, shortly
from serving.assembler.compaction.grounding import unsupported_words, unwitnessed_archive, unwitnessed_rule
from serving.assembler.compaction.policy import CompactionPolicy, OnUnsupported
from serving.assembler.compaction.records import RefusalReason, Replacement, SummaryTask
from serving.assembler.compaction.strategy import Written
from serving.assembler.messages import item_of
from serving.assembler.payloads import Claim
from serving.assembler.quoting import quoted

_PLAIN_ID: Final = re.compile(r"[\w.:/#@+-]+")


def prose(replacement: Replacement, answers: Sequence[str], policy: CompactionPolicy) -> Written:
    """The answers as they came, one after the other, each checked against everything that was read."""
    read = list(evidence(replacement).values())
    unverified = [word for answer in answers for word in ground(answer, read, policy)]
    return Written("\n\n".join(answer.strip() for answer in answers), unverified=_once(unverified))


def facts(replacement: Replacement, answers: Sequence[str], policy: CompactionPolicy) -> Written:
    """One fact a line, each checked against the sources that it cites."""
    read = evidence(replacement)
    lines = [
        line
        for task, answer in zip(replacement.tasks, answers, strict=True)
        for line in cited_lines(answer, citable(task))
    ]
    if not lines:
        raise AnswerRefusedError(RefusalReason.WRONG_FORM, "the answer holds no line that starts with '- '")
    unverified = [word for line in lines for word in ground_line(line, read, policy)]
    claims = tuple(Claim(text=line.text, sources=line.sources) for line in lines)
    return Written("\n".join(map(bullet, claims)), claims, _once(unverified))


def evidence(replacement: Replacement) -> dict[str, str]:
    """What was read, by id; the pieces of a long text put together again."""
    read: dict[str, str] = {}
    for task in replacement.tasks:
        for source in task.sources:
            read[source.id] = read.get(source.id, "") + source.text
    for task in replacement.tasks[:1]:
        if task.query is not None:
            read.setdefault(task.query.id, task.query.text)
    return read


def citable(task: SummaryTask) -> dict[str, str]:
    """Every name by which `task` lets a text be cited, and the id of that text."""
    named = {f"s{number}": source.id for number, source in enumerate(task.sources, 1)}
    if task.query is not None:
        named["q"] = task.query.id
    return {**{source_id: source_id for source_id in named.values()}, **named}


def ground(text: str, sources: Sequence[str], policy: CompactionPolicy) -> tuple[str, ...]:
    """The unverified words of `text`; `AnswerRefusedError` for what the policy does not let pass."""
    if (rule := unwitnessed_rule(text, sources)) is not None:
        raise AnswerRefusedError(RefusalReason.INVENTED_CONSTRAINT, f"no source states {shortly(rule)}")
    if (archive := unwitnessed_archive(text, sources)) is not None:
        raise AnswerRefusedError(RefusalReason.UNWRITTEN_ARCHIVE, f"no source tells of {shortly(archive)}")
    unverified = unsupported_words(text, sources)
    if unverified and policy.on_unsupported is OnUnsupported.REFUSE:
        raise AnswerRefusedError(
            RefusalReason.UNSUPPORTED_WORD,
            f"{', '.join(map(shortly, unverified[:3]))} stands in no source that the text is from",
        )
    return unverified


def ground_line(line: Line, read: Mapping[str, str], policy: CompactionPolicy) -> tuple[str, ...]:
    """The same for one statement, against the sources that it cites; a result is cited with its call."""
    cited_texts = {source: read[source] for source in line.sources}
    calls = {step: read[step] for source in line.sources if (step := item_of(source)) in read}
    return ground(line.text, [*{**calls, **cited_texts}.values()], policy)


def bullet(claim: Claim) -> str:
    """A statement and the ids of its sources, as the model reads them."""
    return f"- {claim.text} [{', '.join(map(cited, claim.sources))}]"


def cited(source_id: str) -> str:
    """An id as it stands between the brackets of a bullet."""
    # A call id is the model's own text: it may hold anything, also a line break and a heading.
    return source_id if _PLAIN_ID.fullmatch(source_id) else quoted(source_id)


def _once(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))
