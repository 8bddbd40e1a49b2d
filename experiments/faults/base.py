"""What a fault may know of the call it sabotages, and the edits that several faults share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType

from serving.assembler import (
    AssemblyRequest,
    AssistantTurn,
    Draft,
    DraftMessage,
    Fault,
    LocalSpan,
    Message,
    Region,
    ToolCall,
    ToolStep,
)


@dataclass(frozen=True, slots=True)
class FaultContext:
    """The call a fault is built for; all of it is data of the study, so a replay gives the same bytes."""

    call: int
    """Number of the call in its trajectory, from 0."""
    now: datetime
    """The time the study says it is."""
    seed: int
    times: tuple[datetime, ...] = ()
    """When the calls before this one were made, in order; only a fault that repeats old times asks for it."""
    reasoning: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Item id → what the model thought there, for a fault that sends back what the policy left out."""
    masked: frozenset[str] | None = None
    """Owners (`part_id(item, call)`) whose content the policy replaced by a short text; None: no policy did,
    and a fault that is about such texts replaces all results but those of the last step itself."""
    always_offered: frozenset[str] = frozenset()
    """Tools that a fault about the set of tools leaves in: without the one that ends a turn nobody ever answers."""


def reasoning_by_call(request: AssemblyRequest) -> Mapping[str, str]:
    """Item id → what the model thought in it, for every message of the model in a request's log, in order.

    So its length is the number of the call, and it is what `FaultContext.reasoning` asks for.
    """
    said = ((item.id, item.payload) for item in request.history)
    return MappingProxyType(
        {owner: turn.reasoning or "" for owner, turn in said if isinstance(turn, AssistantTurn | ToolStep)}
    )


BuildFault = Callable[[FaultContext], Fault]

CONTENT = ("content",)


def clock(now: datetime) -> str:
    """The time in the words in which every clock of this room writes it."""
    return f"Current time: {now:%Y-%m-%d %H:%M:%S}."


def with_text_before(message: DraftMessage, text: str) -> DraftMessage:
    """The message with `text`, which belongs to no item, in front of its content."""
    content = text + (message.message.content or "")
    spans = tuple(span.moved(len(text)) if span.path == CONTENT else span for span in message.spans)
    return DraftMessage(message.message.model_copy(update={"content": content}), spans, message.region)


def with_text_after(message: DraftMessage, text: str) -> DraftMessage:
    """The message with `text`, which belongs to no item, behind its content."""
    before = message.message.content or ""
    changed = message.message.model_copy(update={"content": before + text})
    return DraftMessage(changed, closed(message.spans, len(before)), message.region)


def with_text_of(message: DraftMessage, owner: str, text: str) -> DraftMessage:
    """The message with `text` where its content was written by `owner`; what others wrote in it stays."""
    content = message.message.content or ""
    spans = closed(message.spans, len(content))
    old = next(span for span in spans if span.path == CONTENT and span.item_id == owner)
    end = len(content) if old.end is None else old.end
    grown = len(text) - (end - old.start)
    moved = tuple(
        replace(span, end=old.start + len(text))
        if span is old
        else (span.moved(grown) if span.path == CONTENT and span.start >= end else span)
        for span in spans
    )
    written = content[: old.start] + text + content[end:]
    return DraftMessage(message.message.model_copy(update={"content": written}), moved, message.region)


def closed(spans: tuple[LocalSpan, ...], length: int) -> tuple[LocalSpan, ...]:
    """The spans, those that ran to the end of a content of `length` characters now ending there."""
    return tuple(
        replace(span, end=length) if span.path == CONTENT and span.end is None else span for span in spans
    )


def without_spans_at(message: DraftMessage, *leaves: str) -> tuple[LocalSpan, ...]:
    """The spans of the message but those of the named leaves, which the caller takes away."""
    return tuple(span for span in message.spans if span.path[0] not in leaves)


def first_user(draft: Draft) -> int:
    """Index of the first user message of the trajectory, or of the first message where there is none."""
    users = (
        index
        for index, message in enumerate(draft.messages)
        if message.region is Region.TRAJECTORY and message.message.role == "user"
    )
    return next(users, 0)


def trajectory_end(draft: Draft) -> int:
    """Index behind the last message of the trajectory, before a suffix that follows it."""
    inside = (i for i, message in enumerate(draft.messages) if message.region is Region.TRAJECTORY)
    return max(inside, default=len(draft.messages) - 1) + 1


def changed_at(draft: Draft, index: int, message: DraftMessage) -> Draft:
    """The draft with another message at `index`."""
    return replace(draft, messages=(*draft.messages[:index], message, *draft.messages[index + 1 :]))


def each_in_trajectory(draft: Draft, change: Callable[[DraftMessage], DraftMessage]) -> Draft:
    """The draft with every message of its trajectory changed, all others as they were."""
    return replace(
        draft,
        messages=tuple(
            change(message) if message.region is Region.TRAJECTORY else message for message in draft.messages
        ),
    )


def made_up_step(call: ToolCall, content: str) -> tuple[DraftMessage, DraftMessage]:
    """A call that the model never made and its result; no item wrote them."""
    return (
        DraftMessage(Message(role="assistant", content="", tool_calls=(call,)), (), Region.TRAJECTORY),
        DraftMessage(Message(role="tool", content=content, tool_call_id=call.id), (), Region.TRAJECTORY),
    )


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
