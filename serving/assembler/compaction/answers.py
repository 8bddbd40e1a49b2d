"""Reading a summariser's answer: is it one at all, and what does it claim from which source?

An answer that opens with an error or a refusal is refused unless the sources hold that very line: then it
quotes the log, as the summary of a failed call must.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from serving.assembler.compaction.records import RefusalReason, SummaryTask

_TRACEBACK: Final = re.compile(r"traceback \(most recent call last\)", re.I)
_ERROR_OPENINGS: Final = (
    re.compile(r"(?:i['’]m|i am|we['’]re|we are) (?:very |so )?(?:sorry|afraid|unable|not able)\b", re.I),
    re.compile(r"(?:sorry|apologies)\b[,.! ]", re.I),
    re.compile(
        r"i (?:can(?:not|['’]t| not)|could ?n[o'’]?t|won['’]t|will not|do not have|don['’]t have)\b", re.I
    ),
    re.compile(r"as an? (?:ai|assistant|(?:large )?language model)\b", re.I),
    re.compile(r"(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Timeout)\b\s*[:(]"),
    re.compile(r"(?:<!doctype html|<html|<\?xml|http/\d)", re.I),
    re.compile(r"(?:error|fehler|http)(?: code)?:? ?[45]\d\d\b", re.I),
    re.compile(
        r"[45]\d\d (?:bad request|unauthorized|forbidden|not found|too many requests|internal server error|"
        r"bad gateway|service unavailable|gateway timeout)",
        re.I,
    ),
    re.compile(r"[{\[]\s*[{\"']*(?:error|errors|detail|object)[\"']\s*:\s*[\"'{\[]", re.I),
    re.compile(r"(?:internal server error|bad gateway|service unavailable|gateway time-?out)\b", re.I),
    re.compile(r"upstream (?:connect|request)\b", re.I),
    re.compile(r"(?:rate limit|quota|context length|maximum context)\b.{0,40}\b(?:exceeded|reached)", re.I),
)
"""Matched at the beginning of an answer only: in the middle they are what a summary tells of."""

_BRACKETED: Final = re.compile(r"[\[({<]{1,2}[^\n]{0,120}[\])}>]{1,2}")
_NOTHING_SAID: Final = re.compile(
    r"\W*|(?:todo|tbd|n/?a|none|null|nil|undefined|summary|placeholder|no summary(?: available)?|"
    r"(?:summary|content) (?:is )?(?:not |un)available|nothing to summari[sz]e|lorem ipsum.*)\W*",
    re.I,
)

_CUT: Final = re.compile(
    r"(?:…|\.\.\.|[\[(<](?:\W*)(?:output |text |response |message )?(?:truncated|cut off|snip(?:ped)?|continued?)"
    r"[^\])>]{0,60}[\])>])\s*$",
    re.I,
)

_BULLET: Final = re.compile(r"\s*[-*•]\s+")
_CITED: Final = re.compile(r"(?P<text>.*?)\s*\[(?P<ids>[^\[\]]*)\]\s*\.?\s*", re.S)
_NOTHING: Final = re.compile(r"(?:none|nothing|unchanged|n/a)\W*(?:\[[^\[\]]*\])?", re.I)
_HEADING: Final = re.compile(r"\s*#{1,6}\s*(?P<title>.+?)\s*:?\s*#*\s*")
_QUOTED: Final = 60


class AnswerRefusedError(Exception):
    """An answer does not become a summary; `finish` turns this into a `Refused`."""

    def __init__(self, reason: RefusalReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Line:
    """One statement of an answer, with the ids of its sources."""

    text: str
    sources: tuple[str, ...]


def check_answer(task: SummaryTask, text: str, finish_reason: str | None) -> None:
    """`AnswerRefusedError` for what is no answer: nothing, an error, a refusal, a placeholder, a cut text."""
    stripped = text.strip()
    if not stripped:
        raise AnswerRefusedError(RefusalReason.EMPTY, "the answer is empty")
    if any("\ud800" <= character <= "\udfff" for character in stripped):
        raise AnswerRefusedError(
            RefusalReason.WRONG_FORM, "the answer holds half a character (a lone surrogate)"
        )
    if finish_reason == "length":
        raise AnswerRefusedError(RefusalReason.TRUNCATED, "the server cut the answer at its output limit")
    lines = [line.strip() for line in stripped.splitlines() if line.strip()]
    # The first line of a traceback says nothing of whose it is, so the next one has to be known too.
    opening = [_BULLET.sub("", line, count=1) for line in lines[: 2 if _TRACEBACK.search(lines[0]) else 1]]
    is_error = any(pattern.match(opening[0]) for pattern in (_TRACEBACK, *_ERROR_OPENINGS))
    if is_error and not all(_in_sources(line, task) for line in opening):
        raise AnswerRefusedError(
            RefusalReason.ERROR_TEXT, f"the answer opens with {shortly(opening[0])}, which is in no source"
        )
    if all(_is_placeholder(line.lstrip("# "), task) for line in lines):
        raise AnswerRefusedError(RefusalReason.PLACEHOLDER, f"the whole answer is {shortly(stripped)}")
    last = _BULLET.sub("", lines[-1], count=1)
    if _CUT.search(last) and not _in_sources(last, task):
        raise AnswerRefusedError(RefusalReason.TRUNCATED, f"the answer ends with {shortly(last[-_QUOTED:])}")


def cited_lines(text: str, known: Mapping[str, str]) -> tuple[Line, ...]:
    """The bullets of `text` with their sources; `known` maps every label and id that may be cited to its id.

    What stands before the first bullet is a greeting and is left out. A line without a source, or with one
    that was not there to read, is refused.
    """
    lines: list[Line] = []
    for bullet in _bullets(text):
        if _NOTHING.fullmatch(bullet):
            continue
        if (found := _CITED.fullmatch(bullet)) is None or not found["text"]:
            raise AnswerRefusedError(
                RefusalReason.UNSOURCED_CLAIM, f"no source stands behind {shortly(bullet)}"
            )
        lines.append(Line(found["text"], _ids(found["ids"], known, bullet)))
    return tuple(lines)


def sections(text: str, titles: Sequence[str]) -> dict[str, str]:
    """The text under each of `titles`, whatever their order, case and heading level; all must be there."""
    wanted = {title.casefold(): title for title in titles}
    found: dict[str, list[str]] = {}
    here: list[str] | None = None
    for line in text.splitlines():
        if (heading := _HEADING.fullmatch(line)) is None:
            if here is not None:
                here.append(line)
            continue
        title = wanted.get(heading["title"].strip("* ").casefold())
        if title is None or title in found:
            what = "comes twice" if title else "is none of the asked ones"
            raise AnswerRefusedError(RefusalReason.WRONG_FORM, f"the heading {shortly(line)} {what}")
        here = found.setdefault(title, [])
    if missing := [title for title in titles if title not in found]:
        raise AnswerRefusedError(RefusalReason.MISSING_SECTION, f"there is no section {', '.join(missing)}")
    return {title: "\n".join(lines) for title, lines in found.items()}


def shortly(text: str) -> str:
    """A quotation for an error message: one line, at most sixty characters."""
    line = " ".join(text.split())
    return repr(line if len(line) <= _QUOTED else f"{line[: _QUOTED - 1]}…")


def _bullets(text: str) -> list[str]:
    """Each bullet as one line; a line without a mark goes on with the bullet before it."""
    bullets: list[str] = []
    for line in text.splitlines():
        if (mark := _BULLET.match(line)) is not None:
            bullets.append(line[mark.end() :].strip())
        elif bullets and line.strip():
            bullets[-1] = f"{bullets[-1]} {line.strip()}"
    return [bullet for bullet in bullets if bullet]


def _is_placeholder(line: str, task: SummaryTask) -> bool:
    if _NOTHING_SAID.fullmatch(line):
        return True
    # A tool may well have returned one line in brackets.
    return _BRACKETED.fullmatch(line) is not None and not _in_sources(line, task)


def _ids(cited: str, known: Mapping[str, str], bullet: str) -> tuple[str, ...]:
    # An id may hold a comma, so the whole is tried before its parts.
    names = [cited.strip()] if cited.strip() in known else [name.strip() for name in cited.split(",")]
    for name in names:
        if name not in known:
            raise AnswerRefusedError(
                RefusalReason.UNKNOWN_SOURCE, f"{shortly(name)} was not there to read, in {shortly(bullet)}"
            )
    return tuple(dict.fromkeys(known[name] for name in names))


def _in_sources(line: str, task: SummaryTask) -> bool:
    # A cited line ends with its labels, which are not part of what it quotes.
    without_labels = found["text"] if (found := _CITED.fullmatch(line)) else line
    texts = [*task.sources, *(source for source in (task.query, task.earlier) if source)]
    return any(part and part in source.text for source in texts for part in (line, without_labels))
