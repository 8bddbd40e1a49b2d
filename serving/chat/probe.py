"""What a template does, found by rendering tiny conversations and reading its variables."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from serving.chat.content_format import ContentFormat, detect_content_format
from serving.chat.dialect import JsonObject
from serving.chat.template import ChatTemplate
from serving.errors import UsageError


class ReasoningField(StrEnum):
    """The message field a template prints reasoning from."""

    REASONING = "reasoning"
    REASONING_CONTENT = "reasoning_content"
    THINKING = "thinking"


class TemplateFacts(NamedTuple):
    """What `probe_template` found."""

    renders_tools: bool
    """A tool's description reaches the prompt."""
    renders_tool_calls: bool | None
    """An assistant's call reaches the prompt; False: it is dropped in silence; None: it is refused."""
    renders_tool_results: bool | None
    """A tool message's content reaches the prompt; None: it is refused."""
    reasoning_fields: tuple[ReasoningField, ...]
    """Fields from which reasoning inside a running tool loop reaches the prompt."""
    thinking_switch: bool
    """The template reads `enable_thinking`."""
    accepts_developer: bool
    """The template names the `developer` role."""
    content_format: ContentFormat
    reads_clock: bool
    """The template asks for the current date: renders differ from day to day."""
    variables: frozenset[str]
    """What the template reads from outside."""


_MARK = "zqxprobe"


def probe_template(source: str) -> TemplateFacts:
    """Facts about a template, without a model or tokenizer. Raises: UsageError if it does not compile."""
    template = ChatTemplate(source)
    parts = detect_content_format(template.syntax_tree())
    variables = template.names()
    reached = [f for f in ReasoningField if _reaches(template, parts, _loop(reasoning=f.value), [])]
    return TemplateFacts(
        renders_tools=bool(_reaches(template, parts, [_message("user", "q")], [_tool(_MARK)])),
        renders_tool_calls=_reaches(template, parts, _loop(call=_MARK), [_tool("d")]),
        renders_tool_results=_reaches(template, parts, _loop(result=_MARK), [_tool("d")]),
        reasoning_fields=tuple(reached),
        thinking_switch="enable_thinking" in variables,
        accepts_developer='"developer"' in source or "'developer'" in source,
        content_format=parts,
        reads_clock="strftime_now" in variables or "strftime_now" in source,
        variables=variables,
    )


def _reaches(
    template: ChatTemplate, parts: ContentFormat, messages: list[JsonObject], tools: list[JsonObject]
) -> bool | None:
    given = [_with_parts(message) for message in messages] if parts is ContentFormat.PARTS else messages
    try:
        text = template.render(
            {"messages": given, "tools": tools or None, "add_generation_prompt": True, "bos_token": ""}
        )
    except UsageError:
        return None
    return _MARK in text


def _message(role: str, content: str) -> JsonObject:
    return {"role": role, "content": content}


def _with_parts(message: JsonObject) -> JsonObject:
    if message["role"] == "tool":
        return message
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


def _tool(description: str) -> JsonObject:
    parameters: JsonObject = {"type": "object", "properties": {"x": {"type": "string"}}}
    return {
        "type": "function",
        "function": {"name": "f", "description": description, "parameters": parameters},
    }


def _loop(*, call: str = "v", result: str = "r", reasoning: str | None = None) -> list[JsonObject]:
    assistant: JsonObject = {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "call00001", "type": "function", "function": {"name": "f", "arguments": {"x": call}}}
        ],
    }
    if reasoning is not None:
        assistant[reasoning] = _MARK
    answer: JsonObject = {"role": "tool", "content": result, "tool_call_id": "call00001", "name": "f"}
    return [_message("user", "q"), assistant, answer]
