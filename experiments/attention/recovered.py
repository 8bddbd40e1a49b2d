"""Items of a recorded call, found again from its manifest: it has their order and their tokens, and no text.

A record keeps messages and a manifest, but not which characters were whose. The manifest lists items in packet
order, each with its rendered tokens; so a message's tokens are its items' in that order, with equal separators
between them. Where the counts do not come out, messages stay whole and the context says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from serving.assembler import ContextManifest, Kind, item_of, part_id
from serving.assembler.manifest import SelectedItem
from serving.attention import Segment, SegmentKind, Segments, build_segments
from serving.attention.segments import SINK, framing_segment
from serving.errors import LabError

JsonObject = Mapping[str, JsonValue]

KINDS: Final = {
    Kind.INSTRUCTION: SegmentKind.SYSTEM,
    Kind.OUTPUT_CONTRACT: SegmentKind.SYSTEM,
    Kind.TOOL_CONTRACT: SegmentKind.TOOL,
    Kind.SKILL_ENTRY: SegmentKind.SKILL,
    Kind.SKILL_BODY: SegmentKind.SKILL,
    Kind.EXAMPLE: SegmentKind.EXAMPLE,
    Kind.TASK_STATE: SegmentKind.STATE,
    Kind.OPEN_QUESTION: SegmentKind.STATE,
    Kind.NOTE: SegmentKind.STATE,
    Kind.NOTIFICATION: SegmentKind.STATE,
    Kind.EVIDENCE: SegmentKind.EVIDENCE,
    Kind.MEMORY: SegmentKind.MEMORY,
    Kind.SUMMARY: SegmentKind.SUMMARY,
    Kind.STATUS_BAR: SegmentKind.STATUS_BAR,
}
"""Kinds that are what they are wherever they stand; of turns the message decides."""

_LONGEST_SEPARATOR: Final = 8
"""Tokens between two items of one message, at most."""


class UnlikeManifestError(LabError):
    """The messages do not hold the manifest's items in their order and lengths."""


def message_id(place: int) -> str:
    """The item id of a message that no manifest explains."""
    return f"message-{place:02d}"


def by_items(segments: Segments, messages: Sequence[JsonObject], manifest: ContextManifest) -> Segments:
    """Segments of whole messages (`message_id`) as segments of the manifest's items.

    Raises: UnlikeManifestError, naming the message that does not come out.
    """
    owners = [segments.segments[place] for place in segments.by_token]
    held = {message_id(place): 0 for place in range(len(messages))}
    for owner in owners:
        if owner.item_id in held:
            held[owner.item_id] += 1
    plan = _plan(messages, manifest, [held[message_id(place)] for place in range(len(messages))])
    parts = {message_id(place): _spread(found) for place, found in plan.items()}
    renamed = [_owner(owner, parts) for owner in owners]
    return build_segments(renamed, prompt_tokens=segments.prompt_tokens, sink=segments.segments[0].id == SINK)


def _owner(owner: Segment, parts: Mapping[str, Iterator[SelectedItem | str | None]]) -> Segment:
    """The segment of the next token of a message."""
    if owner.item_id is None or owner.item_id not in parts:
        return owner
    found = next(parts[owner.item_id])
    if found is None:
        return framing_segment()
    if isinstance(found, str):  # the result of a step
        return owner.model_copy(update={"id": found, "item_id": item_of(found)})
    own_part = owner.id.partition("#")[2]
    identity = part_id(found.id, own_part) if own_part else found.id
    kind = KINDS.get(found.kind)
    if kind is None:
        return owner.model_copy(update={"id": identity, "item_id": found.id})
    return Segment(id=identity, label=found.id, kind=kind, item_id=found.id)


def _spread(found: Sequence[tuple[int, SelectedItem | str | None]]) -> Iterator[SelectedItem | str | None]:
    for tokens, item in found:
        for _ in range(tokens):
            yield item


_Found = list[tuple[int, SelectedItem | str | None]]


def _plan(
    messages: Sequence[JsonObject], manifest: ContextManifest, held: Sequence[int]
) -> dict[int, _Found]:
    """For every message, its tokens in order: an item's, a result's owner, or None for a separator."""
    items = [item for item in manifest.selected if item.kind is not Kind.TOOL_CONTRACT]
    plan: dict[int, _Found] = {}
    for place, message in enumerate(messages):
        if message.get("role") == "tool":
            if place not in plan:
                raise UnlikeManifestError(f"message {place} is a result without its step")
        elif message.get("role") == "assistant":
            kind = Kind.TOOL_STEP if message.get("tool_calls") else Kind.ASSISTANT_TURN
            if not items or items[0].kind is not kind:
                raise UnlikeManifestError(f"message {place} is no {kind.value} of the manifest")
            _place_turn(plan, messages, place, held, items.pop(0))
        else:
            plan[place] = _items_of(place, held[place], items)
            items = items[sum(item is not None for _, item in plan[place]) :]
    if items:
        raise UnlikeManifestError(f"no message holds {items[0].id}")
    return plan


def _place_turn(
    plan: dict[int, _Found],
    messages: Sequence[JsonObject],
    place: int,
    held: Sequence[int],
    item: SelectedItem,
) -> None:
    """An assistant's message is one item, and the results that follow its calls are parts of it."""
    plan[place] = [(held[place], item)]
    after = place + 1
    while after < len(messages) and messages[after].get("role") == "tool":
        owner = part_id(item.id, str(messages[after].get("tool_call_id")))
        plan[after] = [(held[after], owner)]
        after += 1
    tokens = sum(held[place:after])
    if tokens != item.tokens:
        raise UnlikeManifestError(f"message {place} has {tokens} tokens, and {item.id} has {item.tokens}")


def _items_of(place: int, tokens: int, items: Sequence[SelectedItem]) -> _Found:
    """The fewest next items that fill a message, with separators of one length between them."""
    taken = 0
    for count, item in enumerate(items, start=1):
        taken += item.tokens
        gaps, rest = count - 1, tokens - taken
        if rest < 0:
            break
        if (rest == 0 and gaps == 0) or (gaps and rest % gaps == 0 and rest // gaps <= _LONGEST_SEPARATOR):
            found: _Found = []
            for one in items[:count]:
                found += [(rest // gaps, None)] if found else []
                found.append((one.tokens, one))
            return found
    raise UnlikeManifestError(f"the {tokens} tokens of message {place} are not those of the next items")
