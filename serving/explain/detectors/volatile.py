"""A clock, a counter or an id that changes from request to request."""

from __future__ import annotations

import re
from typing import NamedTuple

from serving.explain.causes import MissCause
from serving.explain.detectors.finding import Finding, quoted
from serving.explain.difference import Difference

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?"
_TIME = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s?[APap]\.?[Mm]\b)?(?:\s?(?:Z|UTC|GMT|[+-]\d{2}:?\d{2})\b)?"
_CLOCK = re.compile(
    rf"\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}(?:[T ]+{_TIME})?"
    rf"|\d{{1,2}}[./-]\d{{1,2}}[./-]\d{{2,4}}(?:,?\s+{_TIME})?"
    rf"|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,?\s+)?(?:{_MONTH}\s+\d{{1,2}}|\d{{1,2}}\.?\s+{_MONTH})"
    rf"(?:,?\s+\d{{4}})?(?:,?\s+{_TIME})?"
    rf"|{_TIME}"
    r"|\b(?:1[5-9]|2[01])\d{8}(?:\d{3})?(?:\.\d+)?\b"
)
"""Dates, times of day and seconds or milliseconds since 1970 (of the years 2017 to 2039)."""
_WORD = re.compile(r"[0-9A-Za-z_-]+")
_NUMBER = re.compile(r"\d+")
_LABEL = re.compile(
    r"\b(?:the|it|its|is|was|at|as|of|on|current|currently|local|system|time|date|datetime|day|today|now|clock|timestamp"
    r"|utc|gmt)\b",
    re.IGNORECASE,
)
"""Words that name a time and say nothing else; in another language its label makes a time more than a time."""
_WINDOW = 80
_RESUMES = 12
"""Characters that must be the same behind a time before it counts as what broke the prefix; numbers and ids are
common in any text, so behind them the whole window must be."""


class Pair(NamedTuple):
    """The two values, which begin at the same character."""

    stored: str
    sent: str


def volatile(difference: Difference) -> Finding | None:
    """Both sides have a time, a number or an id where they part, and go on alike behind it."""
    if difference.in_reply or difference.in_template or not difference.one_conversation:
        return None
    where = difference.broken.sent.words()
    if pair := changed_clock(difference):
        return Finding(MissCause.CLOCK, f"A time changed in {where}: {_became(pair)}.")
    if difference.broken.sent.role == "assistant":
        return None  # numbers and ids in what the model wrote are its own: another one is another answer
    word = _pair(difference, _WORD, _WINDOW)
    if word and all(_is_identifier(value) for value in word):
        return Finding(MissCause.IDENTIFIER, f"An id changed in {where}: {_became(word)}.")
    number = _pair(difference, _NUMBER, _WINDOW)
    if number:
        return Finding(MissCause.COUNTER, f"A number changed in {where}: {_became(number)}.")
    return None


def passing_clock(difference: Difference) -> Finding | None:
    """A time with no more than its label stands in a message on one side only."""
    change, fragment = difference.change, difference.fragment
    if change is None or fragment is None or not difference.at_edit or (fragment.was and fragment.now):
        return None
    text = fragment.was or fragment.now
    rest, times = _CLOCK.subn("", text)
    if not times or any(char.isalnum() for char in _LABEL.sub("", rest)):
        return None
    if difference.sent.messages[change.message_index].get("role") == "assistant":
        return None
    place = f"message {change.message_index}"
    return Finding(
        MissCause.CLOCK,
        f"A time is gone from {place}, where it stood before: {quoted(text.strip())}."
        if fragment.was
        else f"A time stands in {place}, which had none before: {quoted(text.strip())}.",
    )


def changed_clock(difference: Difference) -> Pair | None:
    """The two times in which both sides part."""
    return _pair(difference, _CLOCK, _RESUMES)


def _pair(difference: Difference, pattern: re.Pattern[str], resumes: int) -> Pair | None:
    """The two matches in which both sides part, if both go on alike for `resumes` characters or a line."""
    stored, sent, char = difference.stored.text, difference.sent.text, difference.broken.character
    was, now = _around(stored, char, pattern), _around(sent, char, pattern)
    if was is None or now is None or was[0] != now[0] or stored[was[0] : was[1]] == sent[now[0] : now[1]]:
        return None
    # Other volatile values may follow (date and time, step and id): they do not count as going on otherwise.
    rest_was = steady_line(stored[was[1] : was[1] + _WINDOW])
    rest_now = steady_line(sent[now[1] : now[1] + _WINDOW])
    if rest_was[:resumes] != rest_now[:resumes]:
        return None
    return Pair(stored[was[0] : was[1]], sent[now[0] : now[1]])


def _around(text: str, char: int, pattern: re.Pattern[str]) -> tuple[int, int] | None:
    """The match that holds a character, or ends right before it."""
    begin = max(0, char - _WINDOW)
    for match in pattern.finditer(text, begin, char + _WINDOW):
        if match.start() <= char <= match.end() and match.end() > match.start():
            return match.span()
        if match.start() > char:
            break
    return None


def steady_line(text: str) -> str:
    """The first line of a text without its times, all numbers made alike."""
    return _NUMBER.sub("0", _CLOCK.sub("", text.partition("\n")[0]))


def _is_identifier(word: str) -> bool:
    """A word that nobody would write: long, with digits among its letters, or a UUID."""
    digits = sum(char.isdigit() for char in word)
    letters = sum(char.isalpha() for char in word)
    return len(word) >= 8 and digits >= 2 and letters >= 1


def _became(pair: Pair) -> str:
    return f"{quoted(pair.stored)} became {quoted(pair.sent)}"
