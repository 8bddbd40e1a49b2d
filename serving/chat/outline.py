"""Where every character of a prompt comes from: the request's own strings, or the template."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

from serving.assembler.messages import MessagePath
from serving.chat.traced import LOST, runs_of


class Origin(NamedTuple):
    """Characters [start, end) of the prompt come from the string, or the container, at `path` of the body."""

    start: int
    end: int
    path: MessagePath
    offset: int | None
    """The character of that string at which they begin; None for keys and brackets, and for rewritten text."""


@dataclass(frozen=True, slots=True)
class Outline:
    """A prompt's text by origin; what no origin covers, the template wrote."""

    text: str
    origins: tuple[Origin, ...]
    """Sorted and disjoint. Empty where the template does something that origins cannot follow."""
    prompt_start: int
    """The character at which the generation prompt begins: what only a call that asks for an answer has."""

    def at(self, char: int) -> Origin | None:
        """The origin of one character; None for the template's own text."""
        place = bisect_right(self.origins, char, key=lambda origin: origin.start) - 1
        return self.origins[place] if place >= 0 and char < self.origins[place].end else None

    def around(self, char: int) -> tuple[Origin | None, Origin | None]:
        """The nearest origins that end at or before a character and that begin after it."""
        place = bisect_right(self.origins, char, key=lambda origin: origin.start)
        before = place - 1
        if before >= 0 and char < self.origins[before].end:
            before -= 1
        return (
            self.origins[before] if before >= 0 else None,
            self.origins[place] if place < len(self.origins) else None,
        )


def origins_in(traced: str) -> tuple[Origin, ...]:
    """Read the origins off a traced render; text that mixes several strings has none."""
    found = []
    position = 0
    for run in runs_of(traced):
        if run.leaf is not None and run.leaf != LOST:
            offset = run.offset if run.offset >= 0 else None
            found.append(Origin(position, position + run.length, run.leaf.path, offset))
        position += run.length
    return tuple(found)
