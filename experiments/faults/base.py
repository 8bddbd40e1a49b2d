"""What a fault may know of the call it sabotages, and the edits that several faults share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from serving.assembler import DraftMessage, Fault


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
