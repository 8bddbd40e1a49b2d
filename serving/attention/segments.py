"""`Segments`: a partition of a token sequence into the parts of a context, each with a name and a kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from serving.assembler import FRAMING
from serving.assembler.record import Record
from serving.errors import UsageError

SINK: Final = "sink"
"""The id of the segment that holds token 0 alone."""


class SegmentKind(StrEnum):
    """What a segment is to the reader of a picture; colours and groups go by it."""

    SINK = "sink"
    """Token 0, set apart first: most heads rest there whatever it says (StreamingLLM, 2309.17453)."""
    FRAMING = "framing"
    """The template's own words: roles, separators, the generation prompt, the stop token."""
    SYSTEM = "system"
    TOOL = "tool"
    """A tool contract."""
    SKILL = "skill"
    EXAMPLE = "example"
    USER = "user"
    THINKING = "thinking"
    ANSWER = "answer"
    """The model's own words to the user."""
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    EVIDENCE = "evidence"
    MEMORY = "memory"
    SUMMARY = "summary"
    STATE = "state"
    """Task state, open questions, notes, notifications."""
    STATUS_BAR = "status_bar"
    TEXT = "text"
    """A prompt without messages."""


class Segment(Record):
    """One part of the context: the unit of all sums."""

    id: str = Field(min_length=1)
    """An item id, an item id and a part (`step-3#thinking`), or one of `sink`, `framing`, `output#…`."""
    label: str = Field(min_length=1)
    """Short, for a legend: `read_file result, turn 2`."""
    kind: SegmentKind
    item_id: str | None = None
    """The assembler's item; None where no item wrote it."""
    turn: int | None = Field(default=None, ge=1)
    """The user turn it follows, counted from 1; None before the first and for what has no turn."""
    generated: bool = False
    """Written by the model in this very call, after the prompt."""


class Run(Record):
    """Tokens [start, end) belong to `Segments.segments[segment]`."""

    start: int = Field(ge=0)
    end: int = Field(ge=1)
    segment: int = Field(ge=0)


class Segments(Record):
    """Every token of a sequence in exactly one segment; `runs` are sorted, touch, and none is empty.

    A segment may have many runs (framing has one around every message). Segments are listed in the order of
    their first token.
    """

    segments: tuple[Segment, ...] = Field(min_length=1)
    runs: tuple[Run, ...] = Field(min_length=1)
    prompt_tokens: int = Field(ge=1)
    """Tokens before the first that the model generated; all of them where it generated none."""

    def _problem(self) -> str | None:
        if self.runs[0].start != 0:
            return f"runs cover the tokens from 0 on, but the first starts at {self.runs[0].start}"
        for run in self.runs:
            if run.end <= run.start or run.segment >= len(self.segments):
                return f"a run is not empty and names one of {len(self.segments)} segments, but got {run!r}"
        for before, after in pairwise(self.runs):
            if before.end != after.start:
                return f"runs touch, but one ends at {before.end} and the next starts at {after.start}"
        ids = [segment.id for segment in self.segments]
        if len(set(ids)) < len(ids):
            return "segment ids are unique"
        if {run.segment for run in self.runs} != set(range(len(self.segments))):
            return "every segment has a run"
        if self.prompt_tokens > self.tokens:
            return f"prompt_tokens is at most the {self.tokens} tokens, got {self.prompt_tokens}"
        return None

    @property
    def tokens(self) -> int:
        """Length of the sequence."""
        return self.runs[-1].end

    @property
    def by_token(self) -> NDArray[np.int64]:
        """[tokens]: the index of every token's segment."""
        owners = np.empty(self.tokens, dtype=np.int64)
        for run in self.runs:
            owners[run.start : run.end] = run.segment
        return owners

    @property
    def sizes(self) -> NDArray[np.int64]:
        """[segments]: tokens of every segment."""
        return np.bincount(self.by_token, minlength=len(self.segments))

    def index(self, segment_id: str) -> int:
        """The place of the segment with this id; raises `UsageError` that lists what there is."""
        for place, segment in enumerate(self.segments):
            if segment.id == segment_id:
                return place
        known = ", ".join(segment.id for segment in self.segments)
        raise UsageError(f"Expected the id of a segment, got {segment_id!r}; there are: {known}.")

    def of_kind(self, *kinds: SegmentKind) -> tuple[int, ...]:
        """The places of all segments of these kinds."""
        return tuple(place for place, segment in enumerate(self.segments) if segment.kind in kinds)

    def positions(self, segment_id: str) -> tuple[int, ...]:
        """The tokens of one segment, in order."""
        place = self.index(segment_id)
        return tuple(
            token for run in self.runs if run.segment == place for token in range(run.start, run.end)
        )


def build_segments(owners: Sequence[Segment], *, prompt_tokens: int, sink: bool = True) -> Segments:
    """Segments from the segment of every token, in token order; equal ids must be equal segments.

    `sink` sets token 0 apart, as is right for any causal model. Raises: UsageError for an empty sequence.
    """
    if not owners:
        raise UsageError("Expected at least one token to divide into segments, got none.")
    if sink:
        owners = (Segment(id=SINK, label="sink (token 0)", kind=SegmentKind.SINK), *owners[1:])
    places: dict[str, int] = {}
    for segment in owners:
        places.setdefault(segment.id, len(places))
    listed = {segment.id: segment for segment in owners}
    return Segments(
        segments=tuple(listed[identity] for identity in places),
        runs=tuple(_runs(owners, places)),
        prompt_tokens=prompt_tokens,
    )


def plain_segments(tokens: int, *, sink: bool = True) -> Segments:
    """One segment over a text without messages, the sink set apart."""
    text = Segment(id="text", label="text", kind=SegmentKind.TEXT)
    return build_segments([text] * tokens, prompt_tokens=tokens, sink=sink)


def framing_segment() -> Segment:
    """The segment of the template's own words."""
    return Segment(id=FRAMING, label="template framing", kind=SegmentKind.FRAMING)


def _runs(owners: Sequence[Segment], places: dict[str, int]) -> Iterator[Run]:
    start = 0
    for token in range(1, len(owners) + 1):
        if token == len(owners) or owners[token].id != owners[start].id:
            yield Run(start=start, end=token, segment=places[owners[start].id])
            start = token
