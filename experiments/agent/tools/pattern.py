"""Regular expressions whose matching takes time linear in the text, whatever the pattern.

A model writes the pattern, and Python's `re` backtracks: `(a+)+b` takes longer than anybody waits. Here the
pattern becomes a Thompson automaton and its states are followed together, each step remembered (Thompson
1968; R. Cox, "Regular Expression Matching Can Be Simple And Fast"). Single characters are left to `re`:
classes and escapes mean what they mean there. Without what needs backtracking: back-references, lookaround.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from experiments.agent.tools.outcome import ToolError

MAX_PATTERN_CHARACTERS: Final = 200
MAX_STATES: Final = 400
MAX_WORK: Final = 5_000_000
"""States looked at in the life of a pattern, some seconds: a bound in work, not in time, so that the same
search ends the same way on every machine."""
_MAX_REMEMBERED: Final = 5_000
_SPECIAL: Final = frozenset("\\^$.|?*+()[]{}")
_COUNT: Final = re.compile(r"\{(\d{1,3})?(,)?(\d{1,3})?\}")
_CLASS: Final = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")


class Place(StrEnum):
    """A condition on the position between two characters."""

    START = "^"
    END = "$"
    WORD_EDGE = r"\b"
    INSIDE_WORD = r"\B"


@dataclass(slots=True)
class _State:
    """Reads one character (`reads`), or asks for a place, or does neither; then goes to all of `then`."""

    reads: re.Pattern[str] | None = None
    place: Place | None = None
    then: list[int] = field(default_factory=list)


class LinePattern:
    """A compiled pattern. Raises `ToolError` for one that is malformed, too long or not supported."""

    def __init__(self, source: str) -> None:
        if len(source) > MAX_PATTERN_CHARACTERS:
            raise ToolError(f"A pattern has at most {MAX_PATTERN_CHARACTERS} characters, not {len(source)}.")
        self._literal = source if not _SPECIAL & set(source) else None
        self._states, self._start, self._accept = _Builder(source).build()
        self._work = 0
        self._remembered: dict[tuple[frozenset[int], str, str], frozenset[int] | None] = {}

    def found_in(self, line: str) -> bool:
        """Whether the pattern matches somewhere in `line`, which holds no line break.

        Raises `ToolError` when the pattern has cost more than `MAX_WORK`.
        """
        if self._literal is not None:
            return self._literal in line
        current, before = frozenset((self._start,)), ""
        for char in line:
            key = (current, _side(before), char)
            if key in self._remembered:
                following = self._remembered[key]
            else:
                following = self._step(current, before, char)
                if len(self._remembered) < _MAX_REMEMBERED:
                    self._remembered[key] = following
            if following is None:
                return True
            current, before = following, char
        return self._accept in self._closure(current, before, "")

    def _step(self, current: frozenset[int], before: str, char: str) -> frozenset[int] | None:
        """The states after reading `char`, the start among them; None: the pattern matched before it."""
        closed = self._closure(current, before, char)
        if self._accept in closed:
            return None
        reached = {self._start}
        for index in closed:
            state = self._states[index]
            if state.reads is not None and state.reads.fullmatch(char):
                reached.update(state.then)
        return frozenset(reached)

    def _closure(self, current: frozenset[int], before: str, after: str) -> set[int]:
        closed: set[int] = set()
        waiting = list(current)
        while waiting:
            index = waiting.pop()
            if index in closed:
                continue
            closed.add(index)
            state = self._states[index]
            if state.reads is None and (state.place is None or _holds(state.place, before, after)):
                waiting.extend(state.then)
        self._work += len(closed)
        if self._work > MAX_WORK:
            raise ToolError("The pattern costs too much on this text; use a simpler one, or a smaller path.")
        return closed


def _side(char: str) -> str:
    """What of the character before a position decides: that there is none, or whether it is of a word."""
    return "" if not char else "w" if _is_word(char) else "-"


def _is_word(char: str) -> bool:
    return char == "_" or char.isalnum()


def _holds(place: Place, before: str, after: str) -> bool:
    if place is Place.START:
        return not before
    if place is Place.END:
        return not after
    edge = bool(before and _is_word(before)) != bool(after and _is_word(after))
    return edge is (place is Place.WORD_EDGE)


class _Builder:
    """Reads a pattern from left to right; a fragment is the index of its first and of its last state."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._states: list[_State] = []

    def build(self) -> tuple[list[_State], int, int]:
        start, end = self._alternatives()
        if self._at < len(self._source):
            raise self._wrong("an unmatched ')'; write '\\)' for the character")
        return self._states, start, end

    def _alternatives(self) -> tuple[int, int]:
        start, end = self._state(), self._state()
        while True:
            first, last = self._sequence()
            self._states[start].then.append(first)
            self._states[last].then.append(end)
            if self._peek() != "|":
                return start, end
            self._at += 1

    def _sequence(self) -> tuple[int, int]:
        first = last = self._state()
        while self._peek() not in ("", "|", ")"):
            begun, states_before = self._at, len(self._states)
            start, end = self._atom()
            size = len(self._states) - states_before
            least, most = self._count()
            # A repeated part is read again from the pattern, once a copy.
            if size * max(least, most or 0) + len(self._states) > MAX_STATES:
                raise self._wrong(f"more than {MAX_STATES} states; repeat less")
            resume = self._at
            for copy in range(max(least, most if most is not None else 1, 1)):
                if copy:
                    self._at = begun
                    start, end = self._atom()
                after = self._state()
                self._states[last].then.append(start)
                self._states[end].then.append(after)
                if copy >= least:
                    self._states[last].then.append(after)
                if most is None and copy >= least - 1:
                    self._states[after].then.append(start)
                last = after
            self._at = resume
            if most == 0:
                raise self._wrong("a part repeated no times; leave it out")
        return first, last

    def _atom(self) -> tuple[int, int]:
        char = self._peek()
        if char == "(":
            return self._group()
        if char in "*+?":
            raise self._wrong(f"nothing for {char!r} to repeat; write '\\{char}' for the character")
        place = next((place for place in Place if self._source.startswith(place, self._at)), None)
        if place is not None:
            self._at += len(place)
            start, end = self._state(place=place), self._state()
        else:
            start, end = self._state(reads=self._one_character()), self._state()
        self._states[start].then.append(end)
        return start, end

    def _group(self) -> tuple[int, int]:
        self._at += 1
        if self._source.startswith("?:", self._at):
            self._at += 2
        elif self._peek() == "?":
            raise self._wrong("'(?'; lookaround, flags and named groups are not supported")
        start, end = self._alternatives()
        if self._peek() != ")":
            raise self._wrong("an unmatched '('; write '\\(' for the character")
        self._at += 1
        return start, end

    def _one_character(self) -> re.Pattern[str]:
        char = self._peek()
        if char == "[":
            found = _CLASS.match(self._source, self._at)
            if found is None:
                raise self._wrong("a '[' without its ']'; write '\\[' for the character")
            text = found.group()
        elif char == "\\":
            text = self._source[self._at : self._at + 2]
            if len(text) < 2 or text[1].isdigit() or (text[1].isalpha() and text[1] not in "dDwWsStnrfv"):
                raise self._wrong(f"{text!r}, which is not supported")
        else:
            text = char
        self._at += len(text)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # on what a later Python may read as a set
                return re.compile(text if text[0] in "[\\." else re.escape(text), re.DOTALL)
        except re.error as error:
            raise self._wrong(f"{text!r}, which is malformed ({error.msg})") from error

    def _count(self) -> tuple[int, int | None]:
        """How often the atom just read stands here: at least, at most (None: no limit)."""
        found = _COUNT.match(self._source, self._at)
        if found is not None and found.group() != "{}":
            self._at = found.end()
            least = int(found[1] or 0)
            most = int(found[3]) if found[3] else None if found[2] else least
            if most is not None and most < least:
                raise self._wrong(f"{found.group()!r}, whose limits are the wrong way round")
            counts: tuple[int, int | None] = (least, most)
        elif (char := self._peek()) in ("*", "+", "?") and char:
            self._at += 1
            counts = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        else:
            return 1, 1
        if self._peek() == "?":  # lazy: which match is found differs, whether one is does not
            self._at += 1
        if self._peek() in ("*", "+", "?") and self._peek():
            raise self._wrong("two repetitions in a row; put the first one in brackets")
        return counts

    def _peek(self) -> str:
        return self._source[self._at : self._at + 1]

    def _state(self, *, reads: re.Pattern[str] | None = None, place: Place | None = None) -> int:
        if len(self._states) >= MAX_STATES:
            raise self._wrong(f"more than {MAX_STATES} states; repeat less")
        self._states.append(_State(reads, place))
        return len(self._states) - 1

    def _wrong(self, what: str) -> ToolError:
        return ToolError(f"The pattern {self._source!r} has {what} (character {self._at}).")
