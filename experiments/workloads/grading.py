"""Grades of answers by code: the agreed form, one right answer, and a reason for everything else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from serving.assembler.record import Record


class Reason(StrEnum):
    """Why an answer got its grade."""

    CORRECT = "correct"
    NO_ANSWER = "no_answer"
    """Nothing in the agreed form: neither one line that is an answer, nor a line `Answer: …`."""
    SEVERAL_ANSWERS = "several_answers"
    """Lines that answer differently: which one counts would be a guess."""
    WRONG = "wrong"
    """An answer of the right form that nothing in the context explains."""
    PARTIAL = "partial"
    """Some of several values are right and none is in another's place."""
    OTHER_ITEM = "other_item"
    """The value of something else that was not asked for."""
    LIMIT_EXCEEDED = "limit_exceeded"
    """Acts though no attempt is left."""
    NEEDLESS_REFUSAL = "needless_refusal"
    """Stops though attempts are left."""
    CONSTRAINT_BROKEN = "constraint_broken"
    SUPERSEDED_VERSION = "superseded_version"
    """What held before."""
    VERSION_NOT_IN_FORCE = "version_not_in_force"
    """What will hold later."""
    LEAK = "leak"
    """Holds something of another tenant, whatever else it says."""


class Grade(Record):
    """One graded answer; `detail` is a sentence for a reader, `got` what counted as the answer."""

    reason: Reason
    expected: str
    got: str | None
    detail: str

    @property
    def passed(self) -> bool:
        """Whether the answer is right."""
        return self.reason is Reason.CORRECT


class Said(Record):
    """The one answer in a text, or why there is none."""

    value: str | None
    problem: Reason | None
    detail: str = ""

    def graded(self, expected: str, reason: Reason, detail: str) -> Grade:
        """A grade for this answer; where there is none, for that reason instead."""
        if self.problem is not None:
            return Grade(reason=self.problem, expected=expected, got=None, detail=self.detail)
        return Grade(reason=reason, expected=expected, got=self.value, detail=detail)


DIGITS: Final = re.compile(r"[0-9]+")
NUMBER: Final = re.compile(r"[0-9]+|[0-9]{1,3}(,[0-9]{3})+")

ANSWER_LINE: Final = "End with the line `Answer: X`, X being {form}."
"""What every question asks for; an answer of one line may leave the word out (constrained choice)."""

_LINE: Final = re.compile(r"^[\s*_>#-]*answer[\s*_]*:(.*)$", re.IGNORECASE | re.MULTILINE)


def read_answer(text: str, form: re.Pattern[str]) -> Said:
    """The answer in `text`, which `form` must match as a whole, letter case aside.

    Markup, quotes and a full stop around it do not count. With no line `Answer: …` the text itself is the
    answer if it is one line.
    """
    lines = [_bare(match.group(1)) for match in _LINE.finditer(text)]
    own = [line for line in text.splitlines() if line.strip()]
    candidates = lines or ([_bare(own[0])] if len(own) == 1 else [])
    values = {candidate.casefold() for candidate in candidates}
    if not candidates:
        return Said(value=None, problem=Reason.NO_ANSWER, detail=f"{len(own)} lines and no line 'Answer: …'")
    if len(values) > 1:
        shown = ", ".join(candidates)
        return Said(value=None, problem=Reason.SEVERAL_ANSWERS, detail=f"answers {shown}")
    if not re.fullmatch(form.pattern, candidates[0], form.flags | re.IGNORECASE):
        return Said(
            value=None, problem=Reason.NO_ANSWER, detail=f"{candidates[0]!r} is not of the asked form"
        )
    return Said(value=candidates[0], problem=None)


def read_number(text: str) -> Said:
    """The whole number in `text`, without leading zeros and separators."""
    said = read_answer(text, NUMBER)
    if said.value is None:
        return said
    return said.model_copy(update={"value": str(int(said.value.replace(",", "")))})


def one_of(choices: Sequence[str]) -> re.Pattern[str]:
    """The form of a choice."""
    return re.compile("|".join(re.escape(choice) for choice in choices))


def _bare(text: str) -> str:
    return text.strip().strip("*_`\"'").rstrip(".").strip("*_`\"'").strip()
