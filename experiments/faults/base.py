"""What a fault may know of the call it sabotages, and the edits that several faults share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from serving.assembler import Draft, DraftMessage, Fault, Region


@dataclass(frozen=True, slots=True)
class FaultContext:
    """The call a fault is built for; all of it is data of the study, so a replay gives the same bytes."""

    call: int
    """Number of the call in its trajectory, from 0."""
    now: datetime
    """The time the study says it is."""
    seed: int


BuildFault = Callable[[FaultContext], Fault]


def with_text_before(message: DraftMessage, text: str) -> DraftMessage:
    """The message with `text`, which belongs to no item, in front of its content."""
    content = text + (message.message.content or "")
    spans = tuple(span.moved(len(text)) if span.path == ("content",) else span for span in message.spans)
    return DraftMessage(message.message.model_copy(update={"content": content}), spans, message.region)


def with_text_after(message: DraftMessage, text: str) -> DraftMessage:
    """The message with `text`, which belongs to no item, behind its content."""
    before = message.message.content or ""
    spans = tuple(
        replace(span, end=len(before)) if span.path == ("content",) and span.end is None else span
        for span in message.spans
    )
    changed = message.message.model_copy(update={"content": before + text})
    return DraftMessage(changed, spans, message.region)


@dataclass(frozen=True, slots=True)
class Parts:
    """A draft's messages in three stretches: before the trajectory, the trajectory, the dynamic suffix."""

    head: tuple[DraftMessage, ...]
    trajectory: tuple[DraftMessage, ...]
    suffix: tuple[DraftMessage, ...]


def parts_of(draft: Draft) -> Parts:
    """Split a draft for a fault that replaces its trajectory and leaves the rest alone."""
    behind = (Region.TRAJECTORY, Region.SUFFIX)
    return Parts(
        head=tuple(message for message in draft.messages if message.region not in behind),
        trajectory=tuple(message for message in draft.messages if message.region is Region.TRAJECTORY),
        suffix=tuple(message for message in draft.messages if message.region is Region.SUFFIX),
    )
