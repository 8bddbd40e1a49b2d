"""From a packet or a chat body to token ids divided into segments, by the spans that survive rendering.

The assembler's spans name the item behind every text. Here the parts of one item that a reader tells apart
(thinking, words, each call) get owners of their own before rendering, so that tokens are never searched for
in text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from serving.assembler import (
    FRAMING,
    CoarseReason,
    Kind,
    Packet,
    PacketSpan,
    Rendered,
    item_of,
    part_id,
)
from serving.assembler.messages import MessagePath
from serving.attention.outputs import output_marks, output_owners, thinking_is_open
from serving.attention.segments import Segment, SegmentKind, Segments, build_segments, framing_segment
from serving.chat import ChatRenderer
from serving.errors import UsageError

SEGMENT_KINDS: Final = {
    Kind.INSTRUCTION: SegmentKind.SYSTEM,
    Kind.OUTPUT_CONTRACT: SegmentKind.SYSTEM,
    Kind.TOOL_CONTRACT: SegmentKind.TOOL,
    Kind.SKILL_ENTRY: SegmentKind.SKILL,
    Kind.SKILL_BODY: SegmentKind.SKILL,
    Kind.EXAMPLE: SegmentKind.EXAMPLE,
    Kind.TASK_STATE: SegmentKind.STATE,
    Kind.OPEN_QUESTION: SegmentKind.STATE,
    Kind.EVIDENCE: SegmentKind.EVIDENCE,
    Kind.MEMORY: SegmentKind.MEMORY,
    Kind.NOTE: SegmentKind.STATE,
    Kind.USER_TURN: SegmentKind.USER,
    Kind.ASSISTANT_TURN: SegmentKind.ANSWER,
    Kind.TOOL_STEP: SegmentKind.ANSWER,
    Kind.SUMMARY: SegmentKind.SUMMARY,
    Kind.NOTIFICATION: SegmentKind.STATE,
    Kind.STATUS_BAR: SegmentKind.STATUS_BAR,
}

_ROLES: Final = {
    "system": SegmentKind.SYSTEM,
    "developer": SegmentKind.SYSTEM,
    "user": SegmentKind.USER,
    "assistant": SegmentKind.ANSWER,
    "tool": SegmentKind.TOOL_RESULT,
}

_STATUS_BAR: Final = re.compile(r"<agent_status>.*?</agent_status>", re.DOTALL)
"""In a body that has no spans: the assembler keeps this tag out of everybody else's words."""

Described = list[tuple[PacketSpan, Segment]]


@dataclass(frozen=True, slots=True)
class Reading:
    """Token ids, prompt and generated, and the segment of each."""

    token_ids: tuple[int, ...]
    segments: Segments
    coarse: CoarseReason | None = None
    """Why the division is coarser than the context; None: it is not."""


def read_packet(packet: Packet, renderer: ChatRenderer, output_ids: Sequence[int] = ()) -> Reading:
    """A packet as the model reads it, and after it what the model wrote (`Exchange.output_token_ids`)."""
    described = list(_of_packet(packet))
    spans = [span for span, _ in described]
    return _read(renderer.render(packet.messages, packet.tools, spans), described, renderer, output_ids)


def read_body(
    messages: Sequence[dict[str, JsonValue]],
    tools: Sequence[dict[str, JsonValue]],
    renderer: ChatRenderer,
    output_ids: Sequence[int] = (),
) -> Reading:
    """The same for messages and tools in the API's form, such as a recorded request's: one segment a message.

    Thinking, calls and a status bar stand apart; items are unknown.
    """
    described = list(_of_body(messages, tools))
    spans = [span for span, _ in described]
    return _read(renderer.render_body(messages, tools, spans), described, renderer, output_ids)


def segments_from(
    rendered: Rendered, segments: Mapping[str, Segment], output: Sequence[Segment] = ()
) -> Segments:
    """Segments from rendered spans, the segment behind every span owner, and those of the generated tokens.

    `framing` needs no entry. Raises: UsageError for an owner without one.
    """
    known = {FRAMING: framing_segment(), **segments}
    owners: list[Segment] = []
    for span in rendered.spans:
        if span.item_id not in known:
            raise UsageError(
                f"Expected a segment for every span owner, got none for {span.item_id!r}; describe it too."
            )
        owners += [known[span.item_id]] * (span.end - span.start)
    return build_segments([*owners, *output], prompt_tokens=len(owners))


def _read(
    rendered: Rendered, described: Described, renderer: ChatRenderer, output_ids: Sequence[int]
) -> Reading:
    segments: dict[str, Segment] = {}
    for span, segment in described:
        if segments.setdefault(span.item_id, segment) != segment:
            raise UsageError(
                f"Expected one meaning of each span owner, got two of {span.item_id!r}: {segment.label!r} and "
                f"{segments[span.item_id].label!r}; give the item or the call another id."
            )
    marks = output_marks(renderer.tokenizer)
    last = rendered.spans[-1]
    tail = rendered.token_ids[last.start :] if last.item_id == FRAMING else ()
    output = output_owners(output_ids, marks, in_thinking=thinking_is_open(tail, marks))
    return Reading(
        token_ids=(*rendered.token_ids, *output_ids),
        segments=segments_from(rendered, segments, output),
        coarse=rendered.coarse,
    )


def _of_packet(packet: Packet) -> Iterator[tuple[PacketSpan, Segment]]:
    kinds = {item.id: item.kind for item in packet.manifest.selected}
    turns = _turns([_is_turn(packet, index, kinds) for index in range(len(packet.messages))])
    names = {call.id: call.name for message in packet.messages for call in message.tool_calls}
    for span in packet.spans:
        item = item_of(span.item_id)
        item_kind = kinds.get(item)
        kind = SegmentKind.TEXT if item_kind is None else SEGMENT_KINDS[item_kind]
        if span.path[0] == "tools":
            name = packet.tools[int(span.path[1])].name
            yield span, _segment(span.item_id, f"tool {name}", kind, item)
            continue
        place = int(span.path[1])
        message = packet.messages[place]
        if item_kind not in (Kind.TOOL_STEP, Kind.ASSISTANT_TURN):
            turn = turns[place] if kind is SegmentKind.USER else None
            yield span, _segment(span.item_id, item_label(kind, item), kind, item, turn)
        elif message.role == "tool":
            name = names.get(message.tool_call_id or "", "tool")
            yield span, _segment(span.item_id, f"{name} result", SegmentKind.TOOL_RESULT, item, turns[place])
        else:
            calls = [(call.id, call.name) for call in message.tool_calls]
            owner, label, part = _assistant_part(span.path, span.item_id, calls)
            moved = span.model_copy(update={"item_id": owner})
            yield moved, _segment(owner, label, part, item, turns[place])


def _of_body(
    messages: Sequence[dict[str, JsonValue]], tools: Sequence[dict[str, JsonValue]]
) -> Iterator[tuple[PacketSpan, Segment]]:
    for place, tool in enumerate(tools):
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        owner = f"tool-{place}"
        yield _span(("tools", place), owner), _segment(owner, f"tool {name}", SegmentKind.TOOL)
    turns = _turns([message.get("role") == "user" for message in messages])
    names = dict(pair for message in messages for pair in _calls(message))
    for place, message in enumerate(messages):
        role, path, owner = str(message.get("role")), ("messages", place), f"message-{place}"
        kind = _ROLES.get(role, SegmentKind.TEXT)
        label = f"{names.get(str(message.get('tool_call_id')), 'tool')} result" if role == "tool" else role
        leaves = [key for key in ("content", "tool_call_id", "name") if message.get(key)]
        for leaf in leaves:
            yield _span((*path, leaf), owner), _segment(owner, label, kind, turn=turns[place])
        content = message.get("content")
        for found in _STATUS_BAR.finditer(content) if isinstance(content, str) else ():
            bar = part_id(owner, "status_bar")
            span = PacketSpan(path=(*path, "content"), start=found.start(), end=found.end(), item_id=bar)
            yield span, _segment(bar, "status bar", SegmentKind.STATUS_BAR, turn=turns[place])
        calls = _calls(message)
        inner: list[MessagePath] = [(*path, key) for key in _REASONING if message.get(key)]
        inner += [(*path, "tool_calls", number) for number in range(len(calls))]
        for leaf_path in inner:
            part_owner, part_label, part = _assistant_part(leaf_path, owner, calls)
            yield _span(leaf_path, part_owner), _segment(part_owner, part_label, part, turn=turns[place])


def item_label(kind: SegmentKind, item: str) -> str:
    """What it is and which one, each said once."""
    words = kind.value.replace("_", " ")
    return words if kind is SegmentKind.USER or item.replace("-", " ") == words else f"{words} {item}"


_REASONING: Final = ("reasoning", "reasoning_content")


def _assistant_part(
    path: MessagePath, owner: str, calls: Sequence[tuple[str, str]]
) -> tuple[str, str, SegmentKind]:
    """Owner, label and kind of one leaf of an assistant message."""
    if path[2] in _REASONING:
        return part_id(owner, "thinking"), "thinking", SegmentKind.THINKING
    if path[2] == "tool_calls":
        identity, name = calls[int(path[3])]
        return part_id(owner, f"call:{identity}"), f"call of {name}", SegmentKind.TOOL_CALL
    return owner, "assistant", SegmentKind.ANSWER


def _calls(message: Mapping[str, JsonValue]) -> list[tuple[str, str]]:
    """Id and function name of every call in a message of the API's form."""
    calls = message.get("tool_calls")
    found = []
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        found.append((str(call.get("id") if isinstance(call, dict) else None), str(name)))
    return found


def _segment(
    owner: str, label: str, kind: SegmentKind, item: str | None = None, turn: int | None = None
) -> Segment:
    shown = f"{label}, turn {turn}" if turn else label
    return Segment(id=owner, label=shown, kind=kind, item_id=item, turn=turn)


def _span(path: MessagePath, owner: str) -> PacketSpan:
    return PacketSpan(path=path, item_id=owner)


def _turns(starts: Sequence[bool]) -> list[int | None]:
    """For every message the user turn that it belongs to, from 1; None before the first."""
    turns: list[int | None] = []
    for starts_turn in starts:
        before = turns[-1] if turns else None
        turns.append((before or 0) + 1 if starts_turn else before)
    return turns


def _is_turn(packet: Packet, message: int, kinds: Mapping[str, Kind]) -> bool:
    """Whether the message holds a user turn (a status bar may be carried by a user message too)."""
    return any(
        span.path[:2] == ("messages", message) and kinds.get(item_of(span.item_id)) is Kind.USER_TURN
        for span in packet.spans
    )
