"""What a server does to a chat body before the template sees it, as named, pure functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from pydantic import JsonValue

from serving.chat.content_format import ContentFormat
from serving.chat.traced import join, rekey, sole_path, trace
from serving.errors import UsageError

JsonObject = dict[str, JsonValue]


class DialectName(StrEnum):
    """The normalisers that exist."""

    VLLM_0_32 = "vllm-0.32"
    """vLLM 0.32's `/v1/chat/completions`."""

    PLAIN = "plain"
    """transformers' `apply_chat_template`: the body goes to the template as it is."""


class TemplateTraits(NamedTuple):
    """What a dialect has to know of the template."""

    content_format: ContentFormat
    has_developer_role: bool


class Conversation(NamedTuple):
    """What the template is given."""

    messages: list[JsonObject]
    tools: list[JsonObject] | None


class Dialect(NamedTuple):
    """A normaliser, in pure steps: each message alone, each tool alone, then what concerns several messages."""

    name: DialectName
    message: Callable[[JsonObject, TemplateTraits], JsonObject]
    tool: Callable[[JsonObject], JsonObject]
    together: Callable[[list[JsonObject], TemplateTraits], list[JsonObject]]
    """Takes what `message` made."""
    keywords: Callable[[Mapping[str, JsonValue]], dict[str, JsonValue]]
    """The template's keyword arguments."""

    def conversation(
        self, messages: Sequence[JsonObject], tools: Sequence[JsonObject], traits: TemplateTraits
    ) -> Conversation:
        """What the template is given for a body's messages and tools."""
        read = [self.message(message, traits) for message in messages]
        return Conversation(self.together(read, traits), [self.tool(tool) for tool in tools] or None)


def dialect_named(name: str) -> Dialect:
    """The dialect called `name`. Raises: UsageError listing the names that exist."""
    if name == DialectName.VLLM_0_32:
        return Dialect(DialectName.VLLM_0_32, _vllm_message, _vllm_tool, _vllm_together, _vllm_keywords)
    if name == DialectName.PLAIN:
        return Dialect(DialectName.PLAIN, lambda message, _: dict(message), _same, _all, dict)
    known = ", ".join(DialectName)
    raise UsageError(f"Expected a dialect out of {known}, got {name!r}. Choose one of these.")


def _same(tool: JsonObject) -> JsonObject:
    return tool


def _all(messages: list[JsonObject], traits: TemplateTraits) -> list[JsonObject]:
    return messages


# --- vLLM 0.32 -------------------------------------------------------------------------------------------
# Sources: entrypoints/openai/chat_completion/protocol.py (validation, build_chat_params),
# renderers/chat_utils.py (parse_chat_messages), renderers/hf.py (safe_apply_chat_template),
# renderers/online_renderer.py (render_chat), entrypoints/generate/base/protocol.py (FunctionDefinition).

_BILLING_HEADER = "x-anthropic-billing-header"
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal", "thinking")


def _vllm_keywords(keywords: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    # `merge_kwargs` treats None and "auto" as not given.
    kept: dict[str, JsonValue] = {}
    for key, value in keywords.items():
        if value is not None and value != "auto":
            kept[key] = value
    reserved = {"chat_template", "tokenize", "tools", "add_generation_prompt"} & kept.keys()
    if reserved:
        raise UsageError(
            f"Expected template arguments, got {', '.join(sorted(reserved))}, which vLLM refuses or sets "
            "from the request's own fields. Drop them."
        )
    return kept


def _vllm_together(messages: list[JsonObject], traits: TemplateTraits) -> list[JsonObject]:
    if not traits.has_developer_role and any(message["role"] == "developer" for message in messages):
        return _merge_system([_developer_as_system(message) for message in messages])
    return messages


def _vllm_tool(tool: JsonObject) -> JsonObject:
    """pydantic's dump of the tool: field order, null for what is absent, unknown keys dropped."""
    function = _object(tool.get("function"), "a tool's function")
    out: JsonObject = {
        "name": function.get("name"),
        "description": function.get("description"),
        "parameters": function.get("parameters"),
    }
    deferred = tool.get("defer_loading")
    inner_deferred = function.get("defer_loading")
    if function.get("strict") is not None:
        out["strict"] = function["strict"]
    if inner_deferred is not None or deferred is not None:
        out["defer_loading"] = inner_deferred if inner_deferred is not None else deferred
    dumped: JsonObject = {"type": tool.get("type", "function"), "function": rekey(out, function)}
    if deferred is not None:
        dumped["defer_loading"] = deferred
    return rekey(dumped, tool)


def _vllm_message(message: JsonObject, traits: TemplateTraits) -> JsonObject:
    role = message["role"]
    parts = _parts(message.get("content"))
    if role == "system":
        parts = _without_billing_header(parts)
    out: JsonObject = {"role": role, "content": _vllm_content(parts, role, traits.content_format)}
    if role == "assistant":
        calls = message.get("tool_calls")
        # An empty list is dropped, so that templates take their ordinary assistant branch.
        if isinstance(calls, list) and calls:
            out["tool_calls"] = [_vllm_call(_object(call, "a tool call")) for call in calls]
        reasoning = message.get("reasoning")
        if reasoning is None:
            reasoning = message.get("reasoning_content")
        if reasoning is not None:
            out["reasoning"] = reasoning
            out["reasoning_content"] = reasoning
    elif role == "tool" and "tool_call_id" in message:
        out["tool_call_id"] = message["tool_call_id"]
    if isinstance(message.get("name"), str):
        out["name"] = message["name"]
    if isinstance(message.get("task"), str):
        out["task"] = message["task"]
    if role == "developer":
        out["tools"] = message.get("tools")
    return out


def _parts(content: JsonValue) -> list[JsonValue]:
    if content is None:
        return []
    return list(content) if isinstance(content, list) else [{"type": "text", "text": content}]


def _vllm_content(parts: list[JsonValue], role: JsonValue, content_format: ContentFormat) -> JsonValue:
    texts = [text for part in parts if (text := _part_text(part)) is not None]
    if content_format is ContentFormat.STRING:
        # An empty part leaves no newline behind: the server drops what is falsy before it joins.
        return join("\n", [text for text in texts if text])
    if role == "tool":
        return join("\n", texts)
    # Extra keys of a part (`cache_control` …) stay beside its text.
    return [
        {"type": "text", "text": text, **_extra_keys(part)}
        for part in parts
        if (text := _part_text(part)) is not None
    ]


def _part_text(part: JsonValue) -> str | None:
    if isinstance(part, str):
        return part
    entry = _object(part, "a content part")
    kind = entry.get("type")
    if kind not in _TEXT_PARTS:
        raise UsageError(f"Expected a text part, got one of type {kind!r}. The lab serves text only.")
    field = {"refusal": "refusal", "thinking": "thinking"}.get(str(kind), "text")
    text = entry.get(field)
    return text if isinstance(text, str) else None


def _extra_keys(part: JsonValue) -> JsonObject:
    known = {"type", "text", "refusal", "thinking", "closed"}
    return {k: v for k, v in part.items() if k not in known} if isinstance(part, dict) else {}


def _without_billing_header(parts: list[JsonValue]) -> list[JsonValue]:
    """Claude Code's attribution line changes with every request; vLLM cuts it out of system text."""
    kept: list[JsonValue] = []
    for part in parts:
        entry = part if isinstance(part, dict) else {"type": "text", "text": part}
        text = entry.get("text")
        if entry.get("type") == "text" and isinstance(text, str) and text.startswith(_BILLING_HEADER):
            rest = text.partition("\n")[2]
            if rest:
                kept.append({**entry, "text": rest})
        else:
            kept.append(part)
    return kept


def _vllm_call(call: JsonObject) -> JsonObject:
    """Validated field order (id, function, type), arguments decoded; extra keys keep their place after."""
    function = _object(call.get("function"), "a tool call's function")
    known: JsonObject = {"arguments": _arguments(function.get("arguments")), "name": function.get("name")}
    extra = {key: value for key, value in function.items() if key not in known}
    head: JsonObject = {"id": call.get("id"), "function": rekey({**known, **extra}, function)}
    if "type" in call:
        head["type"] = call["type"]
    return rekey({**head, **{key: value for key, value in call.items() if key not in head}}, call)


def _arguments(arguments: JsonValue) -> JsonValue:
    """An object; text that is no JSON object becomes `{}`: a bad turn must not end the conversation."""
    if isinstance(arguments, dict):
        return arguments
    if not isinstance(arguments, str) or not arguments:
        return {}
    try:
        parsed: JsonValue = json.loads(arguments)
    except json.JSONDecodeError:
        return {}
    if not isinstance(parsed, dict):
        return {}
    path = sole_path(arguments)
    return parsed if path is None else trace(parsed, path)


def _developer_as_system(message: JsonObject) -> JsonObject:
    if message["role"] != "developer":
        return message
    return {key: ("system" if key == "role" else value) for key, value in message.items() if key != "tools"}


def _merge_system(messages: list[JsonObject]) -> list[JsonObject]:
    """All system messages as one at the head, unless the only one is there already."""
    places = [index for index, message in enumerate(messages) if message["role"] == "system"]
    if places in ([], [0]):
        return messages
    texts = [text for index in places if (text := _text_of(messages[index].get("content")))]
    merged: JsonObject = {"role": "system", "content": join("\n\n", texts)}
    return [merged, *(message for message in messages if message["role"] != "system")]


def _text_of(content: JsonValue) -> str:
    if isinstance(content, list):
        texts = [part["text"] if isinstance(part, dict) else part for part in content]
        return join("\n", [text for text in texts if isinstance(text, str)])
    return content if isinstance(content, str) else ""


def _object(value: JsonValue, what: str) -> JsonObject:
    if not isinstance(value, dict):
        raise UsageError(f"Expected {what} to be an object, got {type(value).__name__}. Correct the body.")
    return value
