"""A summariser without a model: it picks sentences of the sources by rules and changes no letter of them.

For tests and offline use, and as the bar that a model has to pass. It knows English markers only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from serving.assembler.compaction.records import Form, SummaryAnswer, SummaryTask
from serving.assembler.compaction.strategies.anchored_checkpoint import Section

MODEL: Final = "extractive"

_CHARACTERS_PER_TOKEN: Final = 4
_LONGEST: Final = 240
"""Characters of a picked sentence; a longer one is cut at blanks."""
_PER_LINE: Final = 24
"""Characters that a line costs beside its sentence: its mark, and ids that are longer than their labels."""

_SENTENCE_END: Final = re.compile(r"(?<=[.!?;])\s+|\n+")
_MARKS: Final = re.compile(r"^(?:[-*•#>]+\s+|\d{1,3}[.)]\s+)+")
_WORD: Final = re.compile(r"[^\W\d_]{4,}")
_QUERY_WEIGHT: Final = 2
_QUERY_WORDS: Final = 4


@dataclass(frozen=True, slots=True)
class _Sign:
    pattern: re.Pattern[str]
    weight: int
    section: Section | None = None
    """Where a sentence with this sign belongs; the first sign that is found decides."""


_SIGNS: Final = tuple(
    _Sign(re.compile(pattern, re.I), weight, section)
    for pattern, weight, section in (
        (r"\bpending\b|\bawait\w*|\bapproval\b|\bneeds? (?:your )?(?:sign|consent)", 8, Section.APPROVALS),
        (r"\breject\w*|\bdecided against|\binstead of|\bruled out|\babandon\w*", 8, Section.REJECTED),
        (r"\bmust\b|\bnever\b|\bforbidden|\bnot allowed|\bdo not\b|\bonly if\b|\brule\b", 9, Section.RISKS),
        (r"\brisk\w*|\bunclear|\bunknown|\bblock(?:ed|er)\b|\bmay break", 5, Section.RISKS),
        (r"\bnext(?: step)?\b|\bremaining\b|\bto ?do\b", 6, Section.NEXT_STEP),
        (r"\bgoal\b|\btask is\b|\bobjective\b", 6, Section.GOAL),
        (r"\bsha256\b|\b(?:wrote|changed|edited|modified|created|patched)\b", 6, Section.ARTIFACTS),
        (r"\btests?\b.*\b(?:pass|fail)\w*|\b\d+ (?:passed|failed)", 5, Section.TESTS),
        (r"\bverified|\bconfirmed|\bmeasured|\bfound\b|\bshows?\b", 3, Section.EVIDENCE),
        (r"\berror\b|\bfail\w*|\bexception\b", 3, Section.EVIDENCE),
        (r"\bdone\b|\bcompleted?\b|\bfinished\b|\bfixed\b", 3, Section.COMPLETED),
        (r"\d", 1, None),
    )
)


@dataclass(frozen=True, slots=True)
class _Pick:
    text: str
    label: str
    section: Section
    score: int


def extractive(task: SummaryTask) -> SummaryAnswer:
    """An answer to `task` in the form it asks for; equal tasks, equal answers. No token is read or written."""
    picks = _best(_candidates(task), task.max_output * _CHARACTERS_PER_TOKEN)
    match task.form:
        case Form.PROSE:
            text = "\n".join(pick.text for pick in picks)
        case Form.FACTS:
            text = "\n".join(map(_line, picks))
        case Form.CHECKPOINT:
            text = "\n".join(_sections(picks, task))
    return SummaryAnswer(text=text, model=MODEL, prompt_tokens=0, output_tokens=0, finish_reason="stop")


def _candidates(task: SummaryTask) -> Iterator[_Pick]:
    wanted = _words(task.query.text) if task.query is not None else frozenset()
    seen: set[str] = set()
    for number, source in enumerate(task.sources, 1):
        for text in _sentences(source.text):
            if text not in seen:
                seen.add(text)
                yield _pick(text, f"s{number}", wanted)


def _pick(text: str, label: str, wanted: frozenset[str]) -> _Pick:
    found = [sign for sign in _SIGNS if sign.pattern.search(text)]
    section = next((sign.section for sign in found if sign.section is not None), Section.COMPLETED)
    shared = min(_QUERY_WORDS, len(wanted & _words(text)))
    return _Pick(text, label, section, sum(sign.weight for sign in found) + _QUERY_WEIGHT * shared)


def _best(candidates: Iterable[_Pick], characters: int) -> list[_Pick]:
    """The best that fit, in the order of the log; at least the shortest one."""
    everything = list(candidates)
    ranked = sorted(range(len(everything)), key=lambda index: -everything[index].score)
    chosen: list[int] = []
    for index in ranked:
        cost = len(everything[index].text) + _PER_LINE
        if cost <= characters:
            chosen.append(index)
            characters -= cost
    if not chosen and everything:
        chosen = [min(range(len(everything)), key=lambda index: len(everything[index].text))]
    return [everything[index] for index in sorted(chosen)]


def _sections(picks: Sequence[_Pick], task: SummaryTask) -> Iterator[str]:
    # What the user asked last is the goal, if nothing in the log says so of itself.
    goal = next(iter(_sentences(task.query.text)), None) if task.query is not None else None
    for section in Section:
        lines = [_line(pick) for pick in picks if pick.section is section]
        if section is Section.GOAL and goal is not None and not lines:
            lines = [f"- {goal} [q]"]
        yield f"## {section.value}"
        yield from lines or ["none"]


def _line(pick: _Pick) -> str:
    return f"- {pick.text} [{pick.label}]"


def _sentences(text: str) -> Iterator[str]:
    for sentence in _SENTENCE_END.split(text):
        rest = _MARKS.sub("", sentence.strip())
        while len(rest) > _LONGEST:
            end = rest.rfind(" ", 0, _LONGEST)
            if end <= 0:
                # A run without a blank cannot be cut without changing it.
                rest = rest.partition(" ")[2]
                continue
            yield rest[:end].strip()
            rest = rest[end:].strip()
        if any(character.isalnum() for character in rest):
            yield rest


def _words(text: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in _WORD.findall(text))
