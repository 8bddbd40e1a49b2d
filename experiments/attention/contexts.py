"""A token sequence with the meaning of every token, from a packet, a recorded exchange, messages or a plain text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from pydantic import JsonValue

from experiments.attention.recovered import KINDS, UnlikeManifestError, by_items, message_id
from serving.assembler import (
    FRAMING,
    ContextManifest,
    Kind,
    Packet,
    PacketSpan,
    Rendered,
    item_of,
    part_id,
)
from serving.attention import Segment, SegmentKind, Segments, build_segments, plain_segments
from serving.attention.segments import framing_segment
from serving.chat import ChatRenderer
from serving.client import Exchange
from serving.errors import UsageError

JsonObject = dict[str, JsonValue]

OUTPUT: Final = "output"
"""Item id of what the model wrote in this very call."""

GENERATION_PROMPT: Final = 8
"""Tokens at the prompt's end among which a template may have opened the thinking."""

THINKING: Final = "thinking"
CALL: Final = "call"

_ROLES: Final = {
    "system": SegmentKind.SYSTEM,
    "developer": SegmentKind.SYSTEM,
    "user": SegmentKind.USER,
    "assistant": SegmentKind.ANSWER,
    "tool": SegmentKind.TOOL_RESULT,
}


@dataclass(frozen=True, slots=True)
class Context:
    """What a model read and wrote: ids, their segments, and how exact the segments are."""

    token_ids: tuple[int, ...]
    segments: Segments
    note: str | None = None
    """Why the segments are coarser than the items; None: they are the items."""


def packet_context(
    packet: Packet,
    renderer: ChatRenderer,
    output: Sequence[int] = (),
    spans: Sequence[PacketSpan] | None = None,
) -> Context:
    """A packet as the model reads it, and its answer; `spans` replaces the packet's own (finer ones)."""
    kinds = {item.id: item.kind for item in packet.manifest.selected}
    messages = [message.to_api() for message in packet.messages]
    named = _named(packet.spans if spans is None else spans, messages, kinds)
    rendered = renderer.render(packet.messages, packet.tools, [span for span, _ in named])
    return _context(rendered, {span.item_id: segment for span, segment in named}, renderer, output)


def messages_context(
    messages: Sequence[JsonObject],
    tools: Sequence[JsonObject],
    renderer: ChatRenderer,
    output: Sequence[int] = (),
    manifest: ContextManifest | None = None,
) -> Context:
    """Messages in the API's form, each a segment, or each item of it where a manifest tells them apart."""
    plain = list(message_spans(messages, tools, manifest))
    kinds = {} if manifest is None else {item.id: item.kind for item in manifest.selected}
    named = _named(plain, messages, kinds)
    rendered = renderer.render_body(messages, tools, [span for span, _ in named])
    context = _context(rendered, {span.item_id: segment for span, segment in named}, renderer, output)
    if manifest is None or context.note is not None:
        return context
    try:
        return replace(context, segments=by_items(context.segments, messages, manifest))
    except UnlikeManifestError as error:
        return replace(context, note=f"segments are whole messages, for the manifest does not fit: {error}")


def exchange_context(
    exchange: Exchange, renderer: ChatRenderer, manifest: ContextManifest | None = None
) -> Context:
    """A recorded exchange: its own ids, prompt and output, and the items that its manifest names.

    Raises: UsageError where the record has no ids or no messages, and where this renderer makes other ids of
    its messages than were recorded.
    """
    messages, tools = exchange.request.get("messages"), exchange.request.get("tools") or []
    if exchange.prompt_token_ids is None or not isinstance(messages, list) or not isinstance(tools, list):
        raise UsageError(
            "Expected an exchange with messages and prompt ids, got one without; record it from a server that "
            "returns token ids."
        )
    bodies = [cast("JsonObject", message) for message in messages]
    specs = [cast("JsonObject", tool) for tool in tools]
    output = exchange.output_token_ids or ()
    context = messages_context(bodies, specs, renderer, output, manifest)
    here = context.token_ids[: context.segments.prompt_tokens]
    if here != exchange.prompt_token_ids:
        raise UsageError(
            f"Expected the recorded prompt of {len(exchange.prompt_token_ids):,} ids, but this model's template "
            f"makes {len(here):,} of its messages, and they differ; give the model (and thinking mode) of the run."
        )
    return context


def text_context(text: str, renderer: ChatRenderer, output: Sequence[int] = ()) -> Context:
    """A text as it stands, without a template: one segment beside the sink, and one for the output."""
    ids = renderer.tokenizer.encode(text).ids
    if not ids:
        raise UsageError("Expected a text of at least one token, got an empty one.")
    if not output:
        return Context(ids, plain_segments(len(ids)))
    whole = Segment(id="text", label="text", kind=SegmentKind.TEXT)
    owners = [whole] * len(ids) + _output_owners(ids, output, renderer)
    return Context((*ids, *output), build_segments(owners, prompt_tokens=len(ids)))


def message_spans(
    messages: Sequence[JsonObject], tools: Sequence[JsonObject], manifest: ContextManifest | None
) -> Iterator[PacketSpan]:
    """Every message as an item of its own (`message-03`), tools by their name or the manifest's id."""
    ids = {} if manifest is None else {tool.name: tool.id for tool in manifest.tools}
    for place, tool in enumerate(tools):
        name = _tool_name(tool)
        yield PacketSpan(path=("tools", place), item_id=ids.get(name, f"tool:{name}"))
    for place, message in enumerate(messages):
        for field in ("reasoning", "content", "tool_calls"):
            if message.get(field):
                yield PacketSpan(path=("messages", place, field), item_id=message_id(place))


Named = tuple[PacketSpan, Segment]


def _named(
    spans: Iterable[PacketSpan], messages: Sequence[JsonObject], kinds: Mapping[str, Kind]
) -> list[Named]:
    """Every span with its segment; thinking and tool calls become parts of their item."""
    named: list[Named] = []
    for span in spans:
        for finer in _by_call(span, messages):
            segment = _segment(finer, messages, kinds)
            named.append((finer.model_copy(update={"item_id": segment.id}), segment))
    return named


def _by_call(span: PacketSpan, messages: Sequence[JsonObject]) -> Iterator[PacketSpan]:
    """A span over all calls of a message, call by call."""
    if span.path[0] != "messages" or span.path[2:] != ("tool_calls",):
        yield span
        return
    calls = messages[int(span.path[1])].get("tool_calls")
    for place in range(len(calls) if isinstance(calls, list) else 0):
        yield span.model_copy(update={"path": (*span.path, place)})


def _segment(span: PacketSpan, messages: Sequence[JsonObject], kinds: Mapping[str, Kind]) -> Segment:
    item = item_of(span.item_id)
    given = KINDS.get(kinds[item]) if item in kinds else None
    if span.path[0] == "tools":
        return Segment(id=span.item_id, label=item.removeprefix("tool:"), kind=SegmentKind.TOOL, item_id=item)
    place, field = int(span.path[1]), span.path[2]
    role = str(messages[place].get("role"))
    turn = sum(message.get("role") == "user" for message in messages[: place + 1]) or None
    kind, identity, label = given or _ROLES.get(role, SegmentKind.FRAMING), span.item_id, ""
    part = span.item_id.partition("#")[2]
    if field == "reasoning":
        kind, identity, label = SegmentKind.THINKING, part_id(item, THINKING), "thinking"
    elif field == "tool_calls" and len(span.path) > 3:
        call = int(span.path[3])
        kind, identity = SegmentKind.TOOL_CALL, part_id(item, f"{CALL}-{call}")
        label = f"{_called(messages[place], call)} call"
    elif kind is SegmentKind.TOOL_RESULT:
        label = f"{_answered(messages, place)} result"
    elif given is not None:
        label = item
    else:
        label = part or {"assistant": "answer"}.get(role, role)
    counted = turn is not None and given is None and kind is not SegmentKind.SYSTEM
    return Segment(
        id=identity, label=f"{label}, turn {turn}" if counted else label, kind=kind, item_id=item, turn=turn
    )


def _called(message: JsonObject, place: int) -> str:
    match message.get("tool_calls"):
        case [*calls] if place < len(calls):
            match calls[place]:
                case {"function": {"name": str(name)}}:
                    return name
    return "tool"


def _answered(messages: Sequence[JsonObject], place: int) -> str:
    """The name of the tool whose result message `place` is."""
    wanted = messages[place].get("tool_call_id")
    for before in reversed(messages[:place]):
        calls = before.get("tool_calls")
        for number, call in enumerate(calls if isinstance(calls, list) else []):
            if isinstance(call, dict) and call.get("id") == wanted:
                return _called(before, number)
    return "tool"


def _tool_name(tool: JsonObject) -> str:
    match tool:
        case {"function": {"name": str(name)}}:
            return name
        case _:
            return "tool"


def _context(
    rendered: Rendered, segments: Mapping[str, Segment], renderer: ChatRenderer, output: Sequence[int]
) -> Context:
    framing = framing_segment()
    owners = [
        framing if span.item_id == FRAMING else segments[span.item_id]
        for span in rendered.spans
        for _ in range(span.start, span.end)
    ]
    owners += _output_owners(rendered.token_ids, output, renderer)
    return Context(
        token_ids=(*rendered.token_ids, *output),
        segments=build_segments(owners, prompt_tokens=len(rendered.token_ids)),
        note=None if rendered.coarse is None else f"segments are coarse: {rendered.coarse.value}",
    )


def _output_owners(prompt: Sequence[int], output: Sequence[int], renderer: ChatRenderer) -> list[Segment]:
    """What the model wrote, by its own marks: thinking, tool calls, the rest; a closing mark ends its part."""
    parts = {
        kind: Segment(
            id=part_id(OUTPUT, name), label=f"{name} (this call)", kind=kind, item_id=None, generated=True
        )
        for kind, name in (
            (SegmentKind.THINKING, THINKING),
            (SegmentKind.TOOL_CALL, CALL),
            (SegmentKind.ANSWER, "answer"),
        )
    }
    marks = renderer.tokenizer.added_tokens()
    opening = {marks.get("<think>"): SegmentKind.THINKING, marks.get("<tool_call>"): SegmentKind.TOOL_CALL}
    closing = {marks.get("</think>"), marks.get("</tool_call>")} - {None}
    special = {token for token in renderer.added_tokens if token.special}
    ends = {marks[token.text] for token in special if token.text in marks}
    opened = [token for token in prompt[-GENERATION_PROMPT:] if token in opening or token in closing][-1:]
    now = opening.get(opened[0], SegmentKind.ANSWER) if opened else SegmentKind.ANSWER
    owners = []
    for token in output:
        now = opening.get(token, now)
        owners.append(framing_segment() if token in ends else parts[now])
        if token in closing:
            now = SegmentKind.ANSWER
    return owners
