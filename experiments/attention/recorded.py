"""A recorded call as a model read it, with its items found again from the manifest.

A record keeps messages and a manifest, but not which characters were whose. The manifest lists items in packet
order, each with its rendered tokens; so a message's tokens are its items' in that order, with equal separators
between them. Where the counts do not come out, messages stay whole, and it is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, takewhile
from typing import Final

from pydantic import JsonValue

from serving.assembler import ContextManifest, Kind, item_of, part_id
from serving.assembler.manifest import SelectedItem
from serving.attention import (
    Reading,
    Segment,
    Segments,
    build_segments,
    item_label,
    read_body,
)
from serving.attention.reading import SEGMENT_KINDS
from serving.attention.segments import SINK, framing_segment
from serving.chat import ChatRenderer
from serving.client import Exchange
from serving.errors import UsageError

JsonObject = dict[str, JsonValue]

_OF_TURNS: Final = frozenset({Kind.TOOL_CONTRACT, Kind.USER_TURN, Kind.ASSISTANT_TURN, Kind.TOOL_STEP})
_KINDS: Final = {kind: segment for kind, segment in SEGMENT_KINDS.items() if kind not in _OF_TURNS}
"""Kinds that are what they are wherever they stand; of turns the message decides."""

_LONGEST_SEPARATOR: Final = 8
"""Tokens between two items of one message, at most."""


class _UnlikeManifest(Exception):  # noqa: N818 - it never leaves this file
    """The messages do not hold the manifest's items in their order and lengths."""


@dataclass(frozen=True, slots=True)
class RecordedReading:
    """What a call read and wrote, and how exact the division is."""

    reading: Reading
    note: str | None
    """Why segments are whole messages; None: they are the manifest's items."""


def read_exchange(
    exchange: Exchange, renderer: ChatRenderer, manifest: ContextManifest | None
) -> RecordedReading:
    """The recorded ids of a call, prompt and output, divided into the items that its manifest names.

    Raises: UsageError where the record has no ids or no messages, and where this renderer makes other ids of
    its messages than were recorded.
    """
    messages, tools = (
        _objects(exchange.request.get("messages")),
        _objects(exchange.request.get("tools") or []),
    )
    if exchange.prompt_token_ids is None or not messages or tools is None:
        raise UsageError(
            "Expected an exchange with messages and prompt ids, got one without; record it from a server that "
            "returns token ids."
        )
    reading = read_body(messages, tools, renderer, exchange.output_token_ids or ())
    here = reading.token_ids[: reading.segments.prompt_tokens]
    if here != exchange.prompt_token_ids:
        raise UsageError(
            f"Expected the recorded prompt of {len(exchange.prompt_token_ids):,} ids, but this model's template "
            f"makes {len(here):,} of its messages, and they differ; give the model (and thinking mode) of the run."
        )
    if manifest is None:
        return RecordedReading(reading, "segments are whole messages: the record has no manifest")
    divided = by_items(reading.segments, messages, tools, manifest)
    return RecordedReading(replace(reading, segments=divided.segments), divided.note)


@dataclass(frozen=True, slots=True)
class Divided:
    """Segments by item as far as they come out, and what stayed whole."""

    segments: Segments
    note: str | None


def by_items(
    segments: Segments,
    messages: Sequence[JsonObject],
    tools: Sequence[JsonObject],
    manifest: ContextManifest,
) -> Divided:
    """Segments of whole messages (as `read_body` names them) as segments of the manifest's items.

    A system message that does not come out stays whole alone; behind any other that does not, order is lost, and all
    messages stay whole. Tool contracts are told by their names in any case.
    """
    owners = [segments.segments[place] for place in segments.by_token]
    held = [0] * len(messages)
    for owner in owners:
        if (place := _message(owner)) is not None:
            held[place] += 1
    planned: dict[int, _Found]
    try:
        planned, note = _plan(messages, manifest, held)
    except _UnlikeManifest as error:
        planned = {}
        note = f"segments are whole messages, for the manifest does not fit them: {error}"
    plan = {place: _spread(found) for place, found in planned.items()}
    ids = {tool.name: tool.id for tool in manifest.tools}
    contracts = {f"tool-{place}": ids.get(_tool_name(tool)) for place, tool in enumerate(tools)}
    renamed = [_owner(owner, plan, contracts) for owner in owners]
    sink = segments.segments[0].id == SINK
    return Divided(build_segments(renamed, prompt_tokens=segments.prompt_tokens, sink=sink), note)


_Owner = SelectedItem | str | None
"""An item; the span owner of a result; None for a separator, which no item wrote."""


def _message(owner: Segment) -> int | None:
    """The message that a segment of `read_body` is of."""
    name, _, place = item_of(owner.id).rpartition("-")
    return int(place) if name == "message" else None


def _owner(
    owner: Segment, plan: Mapping[int, Iterator[_Owner]], contracts: Mapping[str, str | None]
) -> Segment:
    """The segment of the next token of a message, or of a tool's contract."""
    if (contract := contracts.get(owner.id)) is not None:
        return owner.model_copy(update={"id": contract, "item_id": contract})
    place = _message(owner)
    if place is None or place not in plan:
        return owner
    found = next(plan[place])
    if found is None:
        return framing_segment()
    if isinstance(found, str):
        return owner.model_copy(update={"id": found, "item_id": item_of(found)})
    kind = _KINDS.get(found.kind)
    if kind is not None:
        return Segment(id=found.id, label=item_label(kind, found.id), kind=kind, item_id=found.id)
    part = owner.id.partition("#")[2]
    identity = part_id(found.id, part) if part else found.id
    return owner.model_copy(update={"id": identity, "item_id": found.id})


def _spread(found: Sequence[tuple[int, _Owner]]) -> Iterator[_Owner]:
    for tokens, owner in found:
        for _ in range(tokens):
            yield owner


_Found = list[tuple[int, _Owner]]


_HEAD: Final = (Kind.INSTRUCTION, Kind.OUTPUT_CONTRACT, Kind.SKILL_ENTRY)
"""What stands in a system message."""


def _plan(
    messages: Sequence[JsonObject], manifest: ContextManifest, held: Sequence[int]
) -> tuple[dict[int, _Found], str | None]:
    """For every message, the owners of its tokens in order; and what is coarse about a system message."""
    items = [item for item in manifest.selected if item.kind is not Kind.TOOL_CONTRACT]
    plan: dict[int, _Found] = {}
    note = None
    for place, message in enumerate(messages):
        match message.get("role"):
            case "tool":
                if place not in plan:
                    raise _UnlikeManifest(f"message {place} is a result without its step")
            case "assistant":
                kind = Kind.TOOL_STEP if message.get("tool_calls") else Kind.ASSISTANT_TURN
                if not items or items[0].kind is not kind:
                    raise _UnlikeManifest(f"message {place} is no {kind.value} of the manifest")
                plan.update(_turn(messages, place, held, items.pop(0)))
            case "user":
                plan[place] = _items_of(place, held[place], items)
                items = items[sum(owner is not None for _, owner in plan[place]) :]
            case _:
                plan[place], note = _head_of(place, held[place], items)
                items = list(dropwhile(lambda item: item.kind in _HEAD, items))
    if items:
        raise _UnlikeManifest(f"no message holds {items[0].id}")
    return plan, note


def _head_of(place: int, tokens: int, items: Sequence[SelectedItem]) -> tuple[_Found, str | None]:
    """The items of a system message; the first has it all where a fault has added to it."""
    head = list(takewhile(lambda item: item.kind in _HEAD, items))
    if not head:
        raise _UnlikeManifest(f"message {place} has no item")
    try:
        return _items_of(place, tokens, head), None
    except _UnlikeManifest as error:
        return [(tokens, head[0])], f"the system message is one segment: {error}"


def _turn(
    messages: Sequence[JsonObject], place: int, held: Sequence[int], item: SelectedItem
) -> dict[int, _Found]:
    """An assistant's message is one item, and the results that follow its calls are parts of it."""
    plan: dict[int, _Found] = {place: [(held[place], item)]}
    after = place + 1
    while after < len(messages) and messages[after].get("role") == "tool":
        plan[after] = [(held[after], part_id(item.id, str(messages[after].get("tool_call_id"))))]
        after += 1
    tokens = sum(held[place:after])
    if tokens != item.tokens:
        raise _UnlikeManifest(f"message {place} has {tokens} tokens, and {item.id} has {item.tokens}")
    return plan


def _items_of(place: int, tokens: int, items: Sequence[SelectedItem]) -> _Found:
    """The fewest next items that fill a message, with separators of one length between them."""
    taken = 0
    for count, item in enumerate(items, start=1):
        taken += item.tokens
        gaps, rest = count - 1, tokens - taken
        if rest < 0:
            break
        if (not gaps and not rest) or (gaps and rest % gaps == 0 and rest // gaps <= _LONGEST_SEPARATOR):
            found: _Found = []
            for one in items[:count]:
                found += [(rest // gaps, None)] if found else []
                found.append((one.tokens, one))
            return found
    raise _UnlikeManifest(f"the {tokens} tokens of message {place} are not those of the next items")


def _objects(value: JsonValue) -> list[JsonObject] | None:
    if not isinstance(value, list):
        return None
    return [one for one in value if isinstance(one, dict)]


def _tool_name(tool: JsonObject) -> str:
    match tool:
        case {"function": {"name": str(name)}}:
            return name
        case _:
            return ""
