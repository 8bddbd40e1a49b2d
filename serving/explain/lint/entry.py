"""One line of a log: an OpenAI-style chat request, and what is known of the response."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from pydantic import JsonValue

from serving.errors import UsageError
from serving.explain.turn import JsonObject, reasoning_of

_UNRENDERED = {
    "continue_final_message": "goes on with its last message instead of answering it",
    "chat_template": "brings a template of its own",
}


@dataclass(frozen=True, slots=True)
class ReportedUsage:
    """What the response says of its tokens; None is unknown and never 0."""

    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A request as it was sent, and the response as far as the log has it."""

    line: int
    model: str | None
    messages: tuple[JsonObject, ...]
    tools: tuple[JsonObject, ...]
    template_kwargs: Mapping[str, JsonValue]
    cache_salt: str | None
    reads_cache: bool
    """False where the request asks for prompt log-probabilities: the engine then skips its cache."""
    streamed: bool
    asked_for_usage: bool
    """Whether a streamed request asked for its usage."""
    answered: bool
    """Whether the log has a response at all."""
    reply: JsonObject | None
    finish_reason: str | None
    prompt_ids: tuple[int, ...] | None
    """As the server read them (vLLM's `return_token_ids`)."""
    output_ids: tuple[int, ...] | None
    usage: ReportedUsage | None
    has_reasoning: bool
    """Whether a message carries reasoning."""


def parse_entry(data: bytes, line: int) -> LogEntry:
    """Read one line: the request body, or `{"request": …, "response": …}` or `{"request": …, "usage": …}`.

    A response or usage may also stand beside the fields of the body itself. A call as the lab's own client records it
    (`ctxlab chat --save`) is `{"exchange": …}`.

    Raises: UsageError, one sentence without the line number, for what is no chat request.
    """
    record = _object(_json(data), "one JSON object a line")
    if isinstance(exchange := record.get("exchange"), dict):
        record = _recorded(exchange)
    request = record if "messages" in record else record.get("request", record.get("body"))
    if request is None:
        what = "a /v1/completions request" if "prompt" in record else "an object with other fields"
        raise UsageError(f"Expected a chat request with `messages`, got {what}. Record the request body.")
    body = _object(request, "the request as an object")
    for name, why in _UNRENDERED.items():
        if body.get(name):
            raise UsageError(f"Expected a plain chat request, got one with `{name}`, which {why}.")
    if body.get("add_generation_prompt") is False:
        raise UsageError(
            "Expected a chat request, got one without generation prompt, which asks for no answer."
        )
    choice, folded = _choice(record.get("response"))
    usage = _usage(record.get("usage", folded.get("usage")))
    stream_options = body.get("stream_options")
    reply = choice.get("message")
    salt = body.get("cache_salt")
    messages = _messages(body.get("messages"))
    return LogEntry(
        line=line,
        model=_text(body.get("model")),
        messages=messages,
        tools=_tools(body.get("tools")),
        template_kwargs=_template_kwargs(body),
        cache_salt=salt if isinstance(salt, str) and salt else None,
        reads_cache=body.get("prompt_logprobs") is None,
        streamed=body.get("stream") is True,
        asked_for_usage=isinstance(stream_options, dict) and stream_options.get("include_usage") is True,
        answered=bool(folded) or usage is not None,
        reply=reply if isinstance(reply, dict) else None,
        finish_reason=_text(choice.get("finish_reason")),
        prompt_ids=_ids(folded.get("prompt_token_ids")),
        output_ids=_ids(choice.get("token_ids")),
        usage=usage,
        # A look at the bytes spares nearly every log the look at every message.
        has_reasoning=b"reasoning" in data and any(reasoning_of(message) for message in messages),
    )


def _recorded(exchange: JsonObject) -> JsonObject:
    """The fields of a `serving.client.Exchange` under the names that the wire has for them."""
    if exchange.get("error") is not None:
        return {"request": exchange.get("request")}
    usage = exchange.get("usage")
    return {
        "request": exchange.get("request"),
        "response": {
            "prompt_token_ids": exchange.get("prompt_token_ids"),
            "choices": [
                {
                    "token_ids": exchange.get("output_token_ids"),
                    "finish_reason": exchange.get("finish_reason"),
                }
            ],
            "usage": {**usage, "prompt_tokens_details": usage} if isinstance(usage, dict) else None,
        },
    }


def _json(data: bytes) -> JsonValue:
    try:
        value: JsonValue = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UsageError(f"Expected UTF-8, got byte 0x{data[error.start]:02x} at {error.start}.") from error
    except json.JSONDecodeError as error:
        torn = " (the line ends early)" if error.pos >= len(error.doc.rstrip()) else ""
        raise UsageError(f"Expected JSON, got none{torn}: {error.msg} at character {error.pos}.") from error
    except (RecursionError, ValueError) as error:
        raise UsageError(f"Expected JSON that can be read, got some that cannot: {error}.") from error
    return value


def _messages(value: JsonValue) -> tuple[JsonObject, ...]:
    if not isinstance(value, list) or not value:
        raise UsageError("Expected `messages` to be a list with at least one message.")
    for index, message in enumerate(value):
        if not isinstance(message, dict):
            raise UsageError(f"Expected message {index} as an object, got {_kind(message)}.")
        if not isinstance(message.get("role"), str):
            raise UsageError(f"Expected message {index} to have a role.")
    return tuple(cast(list[JsonObject], value))


def _tools(value: JsonValue) -> tuple[JsonObject, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise UsageError("Expected `tools` to be a list.")
    return tuple(_object(tool, f"tool {index} as an object") for index, tool in enumerate(value))


def _template_kwargs(body: JsonObject) -> dict[str, JsonValue]:
    """What reaches the template (vLLM's `build_chat_params`)."""
    given = body.get("chat_template_kwargs")
    kwargs = dict(given) if isinstance(given, dict) else {}
    effort = body.get("reasoning_effort")
    if effort is not None:
        kwargs["reasoning_effort"] = effort
        kwargs.setdefault("enable_thinking", effort != "none")
    if body.get("documents") is not None:
        kwargs["documents"] = body["documents"]
    return kwargs


def _choice(response: JsonValue) -> tuple[JsonObject, JsonObject]:
    """The first choice and the response; of recorded stream chunks only what needs no joining."""
    if isinstance(response, list):
        chunks = [chunk for chunk in response if isinstance(chunk, dict)]
        merged: JsonObject = {"streamed": bool(chunks)} if chunks else {}
        for chunk in chunks:
            for name in ("usage", "prompt_token_ids"):
                if chunk.get(name) is not None:
                    merged[name] = chunk[name]
        return {}, merged
    if not isinstance(response, dict):
        return {}, {}
    inner = response.get("body")
    response = inner if isinstance(inner, dict) and "choices" not in response else response
    choices = response.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else {}
    return (first if isinstance(first, dict) else {}), response


def _usage(value: JsonValue) -> ReportedUsage | None:
    if not isinstance(value, dict):
        return None
    details = value.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return ReportedUsage(
        prompt_tokens=_count(value.get("prompt_tokens")),
        completion_tokens=_count(value.get("completion_tokens")),
        cached_tokens=_count(cached),
    )


def _ids(value: JsonValue) -> tuple[int, ...] | None:
    if not isinstance(value, list) or not value:
        return None
    ids = tuple(entry for entry in value if _count(entry) is not None and isinstance(entry, int))
    return ids if len(ids) == len(value) and max(ids) < 2**31 else None


def _count(value: JsonValue) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


def _object(value: JsonValue, what: str) -> JsonObject:
    if not isinstance(value, dict):
        raise UsageError(f"Expected {what}, got {_kind(value)}.")
    return value


def _kind(value: JsonValue) -> str:
    names = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
