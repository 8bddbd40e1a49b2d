"""Where a character of a prompt stands: segment, message, field, and the path inside a tool's JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pydantic import JsonValue

from serving.assembler import FRAMING
from serving.assembler.messages import MessagePath
from serving.chat import Origin, Outline
from serving.explain.turn import JsonObject, Turn

_THINK, _THOUGHT = "<think>", "</think>"
_REASONING = ("reasoning", "reasoning_content", "thinking")


class Segment(StrEnum):
    """The part of a prompt that a template writes as a piece."""

    MESSAGE = "message"
    THINK_BLOCK = "think block"
    TOOL_LIST = "tool list"
    GENERATION_PROMPT = "generation prompt"
    """What ends a prompt that asks for an answer."""
    REPLY = "reply"
    """Generated, not sent: only what is stored has one."""
    FRAMING = "framing"
    """The template's own text between messages."""


@dataclass(frozen=True, slots=True)
class Place:
    """One character of a prompt, found by its origin and never by a text search."""

    segment: Segment
    message_index: int | None = None
    """Also where the template wrote the character for the sake of that message."""
    role: str | None = None
    path: MessagePath = ()
    """Of the string in the request body: ("messages", 3, "content"); () for the template's own text."""
    tool: str | None = None
    """The tool, or the tool that is called."""
    json_path: str | None = None
    """Inside the tool's schema or the call's arguments: `$.properties.city`."""
    offset: int | None = None
    """The character of that string; None where a rewritten or structural character has no such number."""
    item_id: str = FRAMING

    def words(self) -> str:
        """`message 3 (tool), character 120`, without the item."""
        match self.segment:
            case Segment.TOOL_LIST:
                named = f"the tool list, tool {self.tool}" if self.tool else "the tool list"
                return f"{named}{self._inside()}"
            case Segment.GENERATION_PROMPT:
                return "the generation prompt"
            case Segment.REPLY:
                return "the generated reply"
            case Segment.FRAMING if self.message_index is None:
                return "the template's framing"
            case Segment.FRAMING:
                return f"the template's framing of message {self.message_index} ({self.role})"
            case Segment.THINK_BLOCK:
                return f"the think block of message {self.message_index} ({self.role})"
            case Segment.MESSAGE:
                return f"message {self.message_index} ({self.role}){self._field()}{self._inside()}"

    def _field(self) -> str:
        name = self.path[2] if len(self.path) > 2 else "content"
        if name == "tool_calls":
            return f", the call of {self.tool}" if self.tool else ", a tool call"
        return "" if name == "content" else f", {name}"

    def _inside(self) -> str:
        if self.json_path is not None:
            return f" at {self.json_path}"
        return "" if self.offset is None else f", character {self.offset}"


def locate(turn: Turn, char: int, messages: int) -> Place:
    """Name the place of one character of `turn.text`; it is looked for in the first `messages` first."""
    if char >= len(turn.prompt_text):
        return Place(Segment.REPLY, role="assistant")
    outline = turn.outline_to(char, messages)
    origin = outline.at(char)
    if origin is not None:
        return _named(turn, origin, None if origin.offset is None else origin.offset + char - origin.start)
    if char >= outline.prompt_start:
        return Place(Segment.GENERATION_PROMPT)
    return _between(turn, outline, char)


def in_think_block(turn: Turn, char: int) -> bool:
    """Whether a character lies in a think block (its marks included) that a template or the model wrote."""
    text = turn.text
    begin = text.rfind(_THINK, 0, char + len(_THINK))
    if begin < 0 or _is_content(turn.outline, begin):
        return False
    end = text.find(_THOUGHT, begin)
    if end < 0:
        return True
    end += len(_THOUGHT)
    while end < len(text) and text[end] == "\n":
        end += 1
    return char < end


def _is_content(outline: Outline, char: int) -> bool:
    origin = outline.at(char) if char < len(outline.text) else None
    return origin is not None and not _is_reasoning(origin)


def _is_reasoning(origin: Origin) -> bool:
    return len(origin.path) > 2 and origin.path[2] in _REASONING


def _between(turn: Turn, outline: Outline, char: int) -> Place:
    before, after = outline.around(char)
    if _is_tool(before) or _is_tool(after):
        near = after if _is_tool(after) and not _is_tool(before) else before
        inside = _is_tool(before) and _is_tool(after)
        return Place(Segment.TOOL_LIST, tool=_tool_name(turn, near) if inside and near else None)
    index = _message(after)
    if index is None:
        # Behind the last origin: the end of the last message.
        index = _message(before)
    if index is None:
        return Place(Segment.FRAMING)
    segment = Segment.MESSAGE if _message(before) == index else Segment.FRAMING
    if in_think_block(turn, char):
        segment = Segment.THINK_BLOCK
    return Place(segment, message_index=index, role=_role(turn, index))


def _named(turn: Turn, origin: Origin, offset: int | None) -> Place:
    path = origin.path
    index = path[1] if len(path) > 1 and isinstance(path[1], int) else None
    if path[:1] == ("tools",):
        return Place(
            Segment.TOOL_LIST,
            path=path,
            tool=_tool_name(turn, origin),
            json_path=_json_path(path[2:], ("function", "parameters")),
            offset=offset,
        )
    call = path[:4] if path[2:3] == ("tool_calls",) and len(path) > 4 else None
    return Place(
        Segment.THINK_BLOCK if _is_reasoning(origin) else Segment.MESSAGE,
        message_index=index,
        role=None if index is None else _role(turn, index),
        path=path,
        tool=None if call is None else _text(_get(turn, (*call, "function", "name"))),
        json_path=None if call is None else _json_path(path[4:], ("function", "arguments")),
        offset=offset,
    )


def _json_path(path: MessagePath, root: tuple[str, str]) -> str | None:
    if path[:2] != root:
        return None
    steps = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path[2:])
    return f"${''.join(steps)}"


def _tool_name(turn: Turn, origin: Origin) -> str | None:
    return _text(_get(turn, (*origin.path[:2], "function", "name")))


def value_at(turn: Turn, path: MessagePath) -> JsonValue:
    """What stands at a path of the request body; None where nothing does."""
    return _get(turn, path)


def _get(turn: Turn, path: Sequence[str | int]) -> JsonValue:
    value: JsonValue = {"messages": list(turn.messages), "tools": list(turn.tools)}
    for part in path:
        if isinstance(value, dict) and isinstance(part, str):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return None
    return value


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


def _role(turn: Turn, index: int) -> str | None:
    message: JsonObject = turn.messages[index] if index < len(turn.messages) else {}
    return _text(message.get("role"))


def _is_tool(origin: Origin | None) -> bool:
    return origin is not None and origin.path[:1] == ("tools",)


def _message(origin: Origin | None) -> int | None:
    if origin is None or origin.path[:1] != ("messages",) or len(origin.path) < 2:
        return None
    return origin.path[1] if isinstance(origin.path[1], int) else None
