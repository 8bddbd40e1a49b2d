"""Arguments of a tool call with the same content, printed otherwise than the model wrote them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from serving.explain.causes import MissCause
from serving.explain.detectors.finding import Finding
from serving.explain.difference import Difference
from serving.explain.turn import JsonObject


def reprinted_arguments(difference: Difference) -> Finding | None:
    """The first tool call that differs holds equal JSON: who printed it anew, the client or the server?"""
    index = difference.broken.sent.message_index
    if (
        index is None
        or index >= len(difference.sent.messages)
        or difference.broken.sent.path[2:3] == ("content",)
    ):
        return None
    message = difference.sent.messages[index]
    for call, (name, sent) in enumerate(calls_of(message)):
        stored = _stored(difference, index, call, sent)
        if stored is None:
            continue
        place = f"the arguments of {name} in message {index}"
        if stored == sent:
            if difference.in_reply and difference.broken.sent.path[2:3] == ("tool_calls",):
                return Finding(
                    MissCause.SERVER_ARGUMENTS,
                    f"The client sent {place} back as the model wrote them, and the template prints them anew.",
                )
            continue
        same = parsed_arguments(stored), parsed_arguments(sent)
        if same[0] is None or same[0] != same[1]:
            return None
        if _keys(same[0]) != _keys(same[1]):
            return Finding(
                MissCause.JSON_KEY_ORDER,
                f"Parsed and printed again: {place} have their keys in another order.",
            )
        return Finding(
            MissCause.JSON_SPACING, f"Parsed and printed again: {place} are spaced or escaped otherwise."
        )
    return None


def calls_of(message: Mapping[str, JsonValue]) -> Iterator[tuple[str, str]]:
    """Name and arguments of every call of a message; arguments sent as an object count as their JSON."""
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments")
            text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            yield str(function.get("name")), text


def _stored(difference: Difference, index: int, call: int, sent: str) -> str | None:
    """The same call's arguments in what is stored: as sent then, as replied, or as found in the output."""
    history = difference.stored.history
    if index < len(history):
        calls = list(calls_of(history[index]))
        return calls[call][1] if call < len(calls) else None
    if not difference.in_reply:
        return None
    output = difference.stored.output_text
    if sent in output:
        return sent
    written = list(written_calls(output))
    return written[call][1] if call < len(written) else None


def written_calls(output: str) -> Iterator[tuple[str, str]]:
    """Name and arguments of calls written as JSON objects, `{"name": …, "arguments": {…}}`, as they stand."""
    decoder = json.JSONDecoder()
    place = output.find("{")
    while place >= 0:
        try:
            value, end = decoder.raw_decode(output, place)
        except ValueError:
            place = output.find("{", place + 1)
            continue
        if isinstance(value, dict) and isinstance(value.get("arguments"), dict):
            begin = output.find("{", output.find('"arguments"', place))
            _, stop = decoder.raw_decode(output, begin)
            yield str(value.get("name")), output[begin:stop]
        place = output.find("{", end)


def parsed_arguments(text: str) -> JsonObject | None:
    """The arguments of a call as an object; None for a text that is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _keys(value: JsonValue) -> JsonValue:
    """The order of keys on every level."""
    if isinstance(value, dict):
        return [[key, _keys(below)] for key, below in value.items()]
    if isinstance(value, list):
        return [_keys(below) for below in value]
    return None
