"""The scripted conversations of a template survey: what turn n is, and what turn n + 1 adds to it."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import NamedTuple

from pydantic import JsonValue

from serving.chat.dialect import JsonObject


class Probe(StrEnum):
    """What happens between turn n and turn n + 1."""

    PLAIN_TURNS = "plain turns"
    TOOL_LOOP = "tool loop"
    PARALLEL_TOOLS = "parallel tools"
    USER_AFTER_LOOP = "user after tool loop"
    THINKING_OFF = "thinking off"
    THINKING_OFF_LOOP = "thinking off, tool loop"
    ECHOED = "thinking echoed"
    ECHOED_LOOP = "thinking echoed, tool loop"
    ECHOED_AFTER_LOOP = "thinking echoed, user after tool loop"
    LEFT_OUT = "thinking left out"
    LEFT_OUT_LOOP = "thinking left out, tool loop"
    DEVELOPER = "developer message"
    LATE_SYSTEM = "late system message"
    TOOL_ADDED = "tool added at the end"


USES_TOOLS = frozenset(
    {
        Probe.TOOL_LOOP,
        Probe.PARALLEL_TOOLS,
        Probe.USER_AFTER_LOOP,
        Probe.THINKING_OFF_LOOP,
        Probe.ECHOED_LOOP,
        Probe.ECHOED_AFTER_LOOP,
        Probe.LEFT_OUT_LOOP,
        Probe.TOOL_ADDED,
    }
)
SWITCHES_OFF = frozenset({Probe.THINKING_OFF, Probe.THINKING_OFF_LOOP})
USES_THINKING = frozenset(
    {Probe.ECHOED, Probe.ECHOED_LOOP, Probe.ECHOED_AFTER_LOOP, Probe.LEFT_OUT, Probe.LEFT_OUT_LOOP}
)


class Spelling(StrEnum):
    """How a client spells what the API lets it spell in two ways; both are factors of the survey."""

    USUAL = "arguments as an object, empty content beside a call"
    ARGUMENTS_AS_TEXT = "arguments as JSON text"
    """As clients send them; vLLM hands the template an object."""
    NULL_CONTENT = "null content beside a call"
    BOTH = "arguments as JSON text, null content beside a call"

    @property
    def text_arguments(self) -> bool:
        return self in (Spelling.ARGUMENTS_AS_TEXT, Spelling.BOTH)

    @property
    def null_content(self) -> bool:
        return self in (Spelling.NULL_CONTENT, Spelling.BOTH)


SYSTEM_TEXT = "System text"
LATE_TEXT = "Late instruction."
TOOL_TEXT = "Looks a word up."


class Habits(NamedTuple):
    """What a template takes, so that every conversation is one that its users would send."""

    reasoning_field: str | None
    """Where it reads reasoning; None puts it before the text, in `<think>` tags."""
    takes_system: bool
    """Whether it accepts a system message at the head; without, the conversations have none."""


class Answer(NamedTuple):
    """An assistant message as the model gave it, and its texts, each found nowhere else."""

    message: JsonObject
    marks: tuple[str, ...]


class Step(NamedTuple):
    """One turn and the next: `messages` and `answer` make turn n, `following` is all that turn n + 1 sends."""

    messages: list[JsonObject]
    answer: Answer
    following: list[JsonObject]
    tools: list[JsonObject]
    following_tools: list[JsonObject]

    def added_texts(self) -> tuple[str, ...]:
        """The texts of the messages that come after the answer."""
        return tuple(str(message["content"]) for message in self.following[len(self.messages) + 1 :])


def steps(probe: Probe, habits: Habits, spelling: Spelling = Spelling.USUAL) -> list[Step]:
    """Every step of a probe, in order; the texts in it are unique, so that they can be found in a render."""
    head: list[JsonObject] = [{"role": "system", "content": SYSTEM_TEXT}] if habits.takes_system else []
    write = _Writer(habits.reasoning_field, spelling)
    begun, tool = [*head, user(1)], _tool("look_up")
    match probe:
        case Probe.PLAIN_TURNS | Probe.THINKING_OFF:
            return _chain(begun, [(write.answer(1), [user(2)]), (write.answer(2), [user(3)])])
        case Probe.TOOL_LOOP | Probe.THINKING_OFF_LOOP:
            return _chain(begun, [(write.call(1), [result(1)]), (write.call(2), [result(2)])], tool)
        case Probe.PARALLEL_TOOLS:
            return _chain(begun, [(write.call(1, 2), [result(1), result(2)])], tool)
        case Probe.USER_AFTER_LOOP:
            loop = [*begun, write.call(1).message, result(1)]
            return _chain(loop, [(write.answer(2), [user(2)])], tool)
        case Probe.ECHOED:
            turns = [(write.answer(n, thought=n), [user(n + 1)]) for n in (1, 2)]
            return _chain(begun, turns)
        case Probe.ECHOED_LOOP:
            turns = [(write.call(n, thought=n), [result(n)]) for n in (1, 2)]
            return _chain(begun, turns, tool)
        case Probe.ECHOED_AFTER_LOOP:
            loop = [*begun, write.call(1, thought=1).message, result(1)]
            return _chain(loop, [(write.answer(2, thought=2), [user(2)])], tool)
        case Probe.LEFT_OUT:
            step = _chain(begun, [(write.answer(1, thought=1), [user(2)])])[0]
            return [step._replace(following=[*begun, write.answer(1).message, user(2)])]
        case Probe.LEFT_OUT_LOOP:
            step = _chain(begun, [(write.call(1, thought=1), [result(1)])], tool)[0]
            return [step._replace(following=[*begun, write.call(1).message, result(1)])]
        case Probe.DEVELOPER:
            return _chain(begun, [(write.answer(1), [_late("developer"), user(2)])])
        case Probe.LATE_SYSTEM:
            return _chain(begun, [(write.answer(1), [_late("system"), user(2)])])
        case Probe.TOOL_ADDED:
            step = _chain(begun, [(write.answer(1), [user(2)])], tool)[0]
            return [step._replace(following_tools=[tool, _tool("look_further")])]


def _chain(
    begun: list[JsonObject], turns: list[tuple[Answer, list[JsonObject]]], *tools: JsonObject
) -> list[Step]:
    messages, found = begun, []
    for answer, added in turns:
        following = [*messages, answer.message, *added]
        found.append(Step(messages, answer, following, list(tools), list(tools)))
        messages = following
    return found


class _Writer:
    """Assistant messages in one spelling, with texts that tell them apart."""

    def __init__(self, reasoning_field: str | None, spelling: Spelling) -> None:
        self._field = reasoning_field
        self._spelling = spelling

    def answer(self, number: int, thought: int | None = None) -> Answer:
        return self._written(f"Answer text {number}.", {}, (), thought)

    def call(self, *numbers: int, thought: int | None = None) -> Answer:
        calls: JsonObject = {"tool_calls": [self._call(number) for number in numbers]}
        return self._written("", calls, tuple(map(_argument, numbers)), thought)

    def _written(
        self, text: str, more: JsonObject, arguments: tuple[str, ...], thought: int | None
    ) -> Answer:
        marks = (*((text,) if text else ()), *arguments)
        content: JsonValue = text
        if thought is not None:
            reasoning = f"Reasoning text {thought}."
            marks = (reasoning, *marks)
            if self._field is not None:
                more = {self._field: reasoning, **more}
            else:
                content = f"<think>\n{reasoning}\n</think>\n\n{text}"
        if not content and self._spelling.null_content:
            content = None
        return Answer({"role": "assistant", "content": content, **more}, marks)

    def _call(self, number: int) -> JsonObject:
        value: JsonObject = {"word": _argument(number)}
        arguments: JsonValue = json.dumps(value) if self._spelling.text_arguments else value
        function: JsonObject = {"name": "look_up", "arguments": arguments}
        return {"id": f"call0000{number}", "type": "function", "function": function}


def user(number: int) -> JsonObject:
    """A question; the template survey writes it wherever a person speaks."""
    return {"role": "user", "content": f"Question text {number}?"}


def result(number: int) -> JsonObject:
    """What the tool answered to call `number`."""
    return {
        "role": "tool",
        "content": f"Result text {number}.",
        "tool_call_id": f"call0000{number}",
        "name": "look_up",
    }


def _late(role: str) -> JsonObject:
    return {"role": role, "content": LATE_TEXT}


def _argument(number: int) -> str:
    return f"argument text {number}"


def _tool(name: str) -> JsonObject:
    parameters: JsonObject = {
        "type": "object",
        "properties": {"word": {"type": "string", "description": "The word."}},
        "required": ["word"],
    }
    function: JsonObject = {"name": name, "description": TOOL_TEXT, "parameters": parameters}
    return {"type": "function", "function": function}
