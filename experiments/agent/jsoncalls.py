"""Tool calls that a model wrote as JSON into its text: between code fences, or bare at the end."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class FoundCall:
    """A call and where it stands in the text, fences included."""

    start: int
    end: int
    name: str
    arguments: str
    """The source text of the object, byte for byte."""


# The closing fence may be missing: a model that stops after the last brace leaves it out.
_FENCE: Final = re.compile(r"```(?:json)?[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_NAMED: Final = re.compile(r'"name"\s*:\s*"([^"\\\n]{1,80})"')
_ARGUMENTS: Final = re.compile(r'"arguments"\s*:')
_LONGEST_ATTEMPT: Final = 100_000
"""Characters in which an attempt at a call is looked for."""


def fenced_calls(text: str, tool_names: Collection[str]) -> Iterator[FoundCall]:
    """Every fenced block that is exactly one call of a known tool."""
    for fence in _FENCE.finditer(text):
        read = _one_call(fence[1], 0, tool_names)
        if read is not None and skip_space(fence[1], read.end) == len(fence[1]):
            yield FoundCall(fence.start(), fence.end(), read.name, read.arguments)


def bare_calls(text: str, tool_names: Collection[str]) -> Iterator[FoundCall]:
    """The calls of known tools that the text ends with, each beginning a line and only space between them.

    An object in the middle of an explanation is an example and no call.
    """
    found: list[FoundCall] = []
    at = 0
    while at < len(text):
        read = _one_call(text, at, tool_names) if text.startswith("{", skip_space(text, at)) else None
        if read is None:
            found.clear()
            line_end = text.find("\n", at)
            at = len(text) if line_end == -1 else line_end + 1
        else:
            found.append(read)
            at = skip_space(text, read.end)
    yield from found


def cut_out(text: str, found: Sequence[FoundCall]) -> str:
    """The text without the calls."""
    for call in reversed(found):
        text = text[: call.start] + text[call.end :]
    return text.strip()


def tries_to_call(text: str, tool_names: Collection[str]) -> bool:
    """Whether a fenced block, or what the text ends with, names a tool and arguments and is yet no call.

    A whole object with words behind it is an example.
    """
    blocks = [fence[1] for fence in _FENCE.finditer(text)]
    opened = text.rfind("\n{") + 1
    if text.startswith("{", opened):
        read = object_parts(text, opened)
        if read is None or skip_space(text, read[1]) == len(text):
            blocks.append(text[opened : opened + _LONGEST_ATTEMPT])
    return any(
        block.lstrip().startswith("{")
        and _ARGUMENTS.search(block) is not None
        and any(name in tool_names for name in _NAMED.findall(block))
        for block in blocks
    )


def _one_call(text: str, at: int, tool_names: Collection[str]) -> FoundCall | None:
    start = skip_space(text, at)
    read = object_parts(text, start)
    if read is None:
        return None
    parts, end = read
    name, arguments = parts.get("name"), parts.get("arguments")
    if name is None or arguments is None or not arguments.startswith("{"):
        return None
    called = json.loads(name)
    if not isinstance(called, str) or called not in tool_names:
        return None
    return FoundCall(start, end, called, arguments)


def object_parts(text: str, at: int) -> tuple[dict[str, str], int] | None:
    """The source text of every value of the JSON object at `at`, and its end; None for anything else."""
    decoder = json.JSONDecoder()
    parts: dict[str, str] = {}
    try:
        if text[at : at + 1] != "{":
            return None
        at = skip_space(text, at + 1)
        while True:
            key, at = decoder.raw_decode(text, at)
            at = skip_space(text, at)
            if not isinstance(key, str) or text[at : at + 1] != ":":
                return None
            start = skip_space(text, at + 1)
            _, end = decoder.raw_decode(text, start)
            parts[key] = text[start:end]
            at = skip_space(text, end)
            mark = text[at : at + 1]
            at += 1
            if mark == "}":
                return parts, at
            if mark != ",":
                return None
            at = skip_space(text, at)
    except (ValueError, RecursionError):
        return None  # no JSON, so no call: it stays what it is, text


def skip_space(text: str, at: int) -> int:
    """Where the next character that is no white space stands, from `at` on."""
    found = _SPACE.match(text, at)
    return at if found is None else found.end()
