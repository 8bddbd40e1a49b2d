"""From what a model said to the tool calls in it, and in which form they came."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from serving.assembler import ToolCall
from serving.client import Exchange
from serving.text import require_unicode_text


class CallForm(StrEnum):
    """How an answer asked for tools; recorded with every call of the loop."""

    NATIVE = "native"
    """As the model's template has it: the server's parser found the calls."""
    FENCED = "fenced"
    """As JSON between code fences, which small Qwen coders write; read here, where the loop allows it."""
    NONE = "none"
    """No tool was called."""


@dataclass(frozen=True, slots=True)
class ReceivedCall:
    """A call with the id that the history will use, and the server's, which may be missing or taken already."""

    call: ToolCall
    received_id: str | None


@dataclass(frozen=True, slots=True)
class Said:
    """What the model said, as the history will repeat it."""

    form: CallForm
    text: str
    """As received; with the fenced form, without the fences, whose calls are sent back as calls."""
    reasoning: str | None
    calls: tuple[ReceivedCall, ...]


UNNAMED: Final = "unnamed"
"""The name of a call that came without one, which no tool has."""


def read_answer(
    exchange: Exchange, *, tool_names: Collection[str], used_ids: Collection[str], accept_fenced: bool
) -> Said:
    """Read text, reasoning and calls of a finished exchange; arguments stay byte for byte.

    A fenced block counts as a call only if no native call came, `accept_fenced` is set, and it is one object
    that names one of `tool_names` and has an object of arguments. Raises `UsageError` for an answer that
    UTF-8 cannot carry back.
    """
    require_unicode_text(exchange.text + exchange.reasoning, "the model's answer")
    reasoning = exchange.reasoning or None
    if exchange.tool_calls:
        native = [(call.id, call.name or UNNAMED, call.arguments) for call in exchange.tool_calls]
        return Said(CallForm.NATIVE, exchange.text, reasoning, _with_ids(native, used_ids))
    fenced = list(_fenced_calls(exchange.text, tool_names)) if accept_fenced else []
    if not fenced:
        return Said(CallForm.NONE, exchange.text, reasoning, ())
    text = exchange.text
    for found in reversed(fenced):
        text = text[: found.start] + text[found.end :]
    calls = _with_ids([(None, found.name, found.arguments) for found in fenced], used_ids)
    return Said(CallForm.FENCED, text.strip(), reasoning, calls)


def _with_ids(
    received: list[tuple[str | None, str, str]], used_ids: Collection[str]
) -> tuple[ReceivedCall, ...]:
    taken = set(used_ids)
    calls: list[ReceivedCall] = []
    for received_id, name, arguments in received:
        require_unicode_text(f"{received_id}{name}{arguments}", "the model's tool call")
        call_id = received_id
        number = len(taken)
        while not call_id or call_id in taken:
            call_id = f"call-{number}"
            number += 1
        taken.add(call_id)
        calls.append(ReceivedCall(ToolCall(id=call_id, name=name, arguments=arguments), received_id))
    return tuple(calls)


@dataclass(frozen=True, slots=True)
class _Fenced:
    start: int
    end: int
    name: str
    arguments: str


# The closing fence may be missing: a model that stops after the last brace leaves it out.
_FENCE: Final = re.compile(r"```(?:json)?[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_SPACE: Final = re.compile(r"[ \t\r\n]*")


def _fenced_calls(text: str, tool_names: Collection[str]) -> Iterator[_Fenced]:
    for fence in _FENCE.finditer(text):
        parts = _object_parts(fence[1])
        name, arguments = parts.get("name"), parts.get("arguments")
        if name is None or arguments is None or not arguments.startswith("{"):
            continue
        called = json.loads(name)
        if isinstance(called, str) and called in tool_names:
            yield _Fenced(fence.start(), fence.end(), called, arguments)


def _object_parts(text: str) -> dict[str, str]:
    """The source text of every value of one JSON object; empty when `text` is anything else."""
    decoder = json.JSONDecoder()
    parts: dict[str, str] = {}

    def skip(at: int) -> int:
        found = _SPACE.match(text, at)
        return at if found is None else found.end()

    try:
        at = skip(0)
        if text[at : at + 1] != "{":
            return {}
        at = skip(at + 1)
        while True:
            key, at = decoder.raw_decode(text, at)
            at = skip(at)
            if not isinstance(key, str) or text[at : at + 1] != ":":
                return {}
            start = skip(at + 1)
            _, end = decoder.raw_decode(text, start)
            parts[key] = text[start:end]
            at = skip(end)
            mark = text[at : at + 1]
            at = skip(at + 1)
            if mark == "}":
                return parts if at == len(text) else {}
            if mark != ",":
                return {}
    except (ValueError, RecursionError):
        return {}  # no JSON, so no call: it stays what it is, text
