"""The wire form of a request: messages, tool calls, tool specifications, and the item behind each part."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, JsonValue

from serving.assembler.record import Record

PathPart: TypeAlias = str | int
MessagePath: TypeAlias = tuple[PathPart, ...]
"""Where a leaf is: ("messages", 3, "content"), ("messages", 3, "tool_calls", 0, "arguments") …"""

Role = Literal["system", "developer", "user", "assistant", "tool"]

FRAMING: Final = "framing"
"""The span owner of everything that no item wrote: template text, separators, the generation prompt."""

PART_MARK: Final = "#"
"""Separates an item id from the part of the item: `step-3#call_7` is the result of call_7 in step-3."""


class ToolCall(Record):
    """One call that the model asked for."""

    id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    arguments: str
    """JSON text exactly as the API carried it; parsing and printing it again would change bytes."""

    def to_api(self) -> dict[str, JsonValue]:
        """The call in the form of an OpenAI chat body."""
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }


class Message(Record):
    """One chat message; on the wire `content` is always there, other absent fields stay absent."""

    role: Role
    content: str | None
    reasoning: str | None = None
    """What the model thought, as a reasoning server returned it; never mixed into `content`."""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None

    @cached_property
    def as_json(self) -> str:
        """All fields as JSON: what is hashed."""
        return self.model_dump_json()

    def to_api(self) -> dict[str, JsonValue]:
        """The message in the form of an OpenAI chat body, reasoning under `reasoning` as vLLM reads it."""
        body: dict[str, JsonValue] = {"role": self.role, "content": self.content}
        for key, value in (
            ("reasoning", self.reasoning),
            ("tool_call_id", self.tool_call_id),
            ("name", self.name),
        ):
            if value is not None:
                body[key] = value
        if self.tool_calls:
            body["tool_calls"] = [call.to_api() for call in self.tool_calls]
        return body


class ToolSpec(Record):
    """What the model is told of a tool; key order inside `parameters` is kept, as part of the bytes."""

    name: str = Field(min_length=1)
    description: str
    parameters: Annotated[dict[str, JsonValue], AfterValidator(copy.deepcopy)]
    """A JSON schema; copied in and, by `to_api`, copied out, so that no caller can edit a live packet."""

    def to_api(self) -> dict[str, JsonValue]:
        """The tool in the form of an OpenAI chat body."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": copy.deepcopy(self.parameters),
            },
        }


class PacketSpan(Record):
    """Characters [start, end) of one leaf string, or a whole subtree, and the item that wrote them.

    `end` None means up to the end of the leaf. A path that names a subtree (("tools", 2),
    ("messages", 4, "tool_calls", 0)) covers every leaf below it. Spans of one leaf never overlap.
    """

    path: MessagePath
    start: int = Field(default=0, ge=0)
    end: int | None = None
    item_id: str
    """An item id, or an item id and a part (`part_id`)."""


def part_id(item_id: str, part: str) -> str:
    """The span owner for one part of an item, such as one result of a parallel tool step."""
    return f"{item_id}{PART_MARK}{part}"


def item_of(span_owner: str) -> str:
    """The item id behind a span owner: the inverse of `part_id`, identity on plain ids and on `framing`."""
    return span_owner.partition(PART_MARK)[0]


def leaves(messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Iterator[tuple[MessagePath, str]]:
    """Every non-empty string that a template may print, roles and schema keys aside, in packet order."""
    for index, message in enumerate(messages):
        here = ("messages", index)
        for name in ("reasoning", "content", "tool_call_id", "name"):
            if text := getattr(message, name):
                yield (*here, name), text
        for place, call in enumerate(message.tool_calls):
            for name in ("id", "name", "arguments"):
                if text := getattr(call, name):
                    yield (*here, "tool_calls", place, name), text
    for index, tool in enumerate(tools):
        yield from _strings(("tools", index), {"name": tool.name, "description": tool.description})
        yield from _strings(("tools", index, "parameters"), tool.parameters)


def _strings(path: MessagePath, value: JsonValue) -> Iterator[tuple[MessagePath, str]]:
    match value:
        case str() if value:
            yield path, value
        case dict():
            for key, below in value.items():
                yield from _strings((*path, key), below)
        case list():
            for index, below in enumerate(value):
                yield from _strings((*path, index), below)
