"""From the JSON of a stream to typed events and the finished reply: no network, no clock."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from pydantic import JsonValue

from serving.client.events import (
    Failure,
    Finish,
    HeldTokens,
    PromptIds,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallComplete,
    ToolCallFragment,
    UsageReport,
)
from serving.client.exchange import Arrival, ErrorKind, ExchangeError, ReceivedToolCall, Usage
from serving.client.toolcalls import ToolCallAssembly

_BODY_LIMIT = 4000


@dataclass(slots=True)
class ReplyFold:
    """Folds the `data` of each event into a reply; `feed` until `done` or `error`.

    The chunk shapes are vLLM's (`ChatCompletionStreamResponse`, `CompletionStreamResponse`), a superset of
    OpenAI's. The role-only chunk is not a token. With token ids a token is what has an id; without them it is
    what shows as reasoning, text or a tool call.
    """

    prompt_token_ids: tuple[int, ...] | None = None
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    usage: Usage | None = None
    metrics: dict[str, JsonValue] | None = None
    arrivals: list[Arrival] = field(default_factory=list)
    last_token_ns: int | None = None
    done: bool = False
    error: ExchangeError | None = None
    _output_ids: list[int] = field(default_factory=list)
    _ids_seen: bool = False
    _ids_missing: bool = False
    _calls: dict[int, ToolCallAssembly] = field(default_factory=dict)

    @property
    def output_token_ids(self) -> tuple[int, ...] | None:
        return tuple(self._output_ids) if self._ids_seen and not self._ids_missing else None

    @property
    def tool_calls(self) -> tuple[ReceivedToolCall, ...]:
        return tuple(self._calls[index].snapshot() for index in sorted(self._calls))

    def feed(self, data: str, at_ns: int) -> list[StreamEvent]:
        """The events of one SSE `data`; malformed data is a `Failure` and sets `error`."""
        if data.startswith("[DONE]"):
            self.done = True
            return []
        try:
            chunk = json.loads(data)
        except ValueError:
            return self._fail(
                at_ns, ErrorKind.BAD_DATA, "Expected JSON in the stream, got something else", data
            )
        if not isinstance(chunk, dict):
            return self._fail(at_ns, ErrorKind.BAD_DATA, "Expected a JSON object in the stream", data)
        if chunk.get("error") or chunk.get("object") == "error":
            return self._server_error(chunk, at_ns)
        try:
            return self._take(chunk, at_ns)
        except (TypeError, ValueError, KeyError, AttributeError) as problem:
            # A chunk of a shape that no OpenAI-compatible server sends: recorded as what it is, with the
            # reply so far, instead of taking the caller's run down.
            return self._fail(at_ns, ErrorKind.BAD_DATA, f"Expected an OpenAI chunk ({problem})", data)

    def _take(self, chunk: dict[str, JsonValue], at_ns: int) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        choices = chunk.get("choices") or []
        choice = _object(choices[0]) if isinstance(choices, list) and choices else {}
        prompt = chunk.get("prompt_token_ids") or choice.get("prompt_token_ids")
        if prompt is not None and self.prompt_token_ids is None:
            self.prompt_token_ids = _ids(prompt)
            events.append(PromptIds(at_ns, self.prompt_token_ids))
        if choice:
            events += self._choice(choice, at_ns)
        if (metrics := chunk.get("metrics")) is not None:
            self.metrics = _object(metrics)
        if (usage := chunk.get("usage")) is not None:
            self.usage = read_usage(_object(usage))
            events.append(UsageReport(at_ns, self.usage))
        return events

    def _choice(self, choice: dict[str, JsonValue], at_ns: int) -> list[StreamEvent]:
        given = choice.get("token_ids")
        ids = None if given is None else _ids(given)
        shown = self._shown(choice, at_ns, ids)
        if ids is None:
            # Unknown only if something arrived: a role or finish chunk may come without ids.
            if shown:
                self._ids_missing = True
                self._arrive(at_ns, None)
        else:
            self._ids_seen = True
            self._output_ids += ids
            if ids:
                self._arrive(at_ns, len(ids))
                if not shown:
                    shown = [HeldTokens(at_ns, ids)]
        if (reason := choice.get("finish_reason")) is not None:
            self.finish_reason = str(reason)
            if not self._ids_seen and self.last_token_ns is not None:
                self.last_token_ns = at_ns
            shown.append(Finish(at_ns, self.finish_reason))
        return shown

    def _shown(
        self, choice: dict[str, JsonValue], at_ns: int, ids: tuple[int, ...] | None
    ) -> list[StreamEvent]:
        delta = _object(choice.get("delta") or {})
        shown: list[StreamEvent] = []

        def own() -> tuple[int, ...] | None:
            return ids if not shown or ids is None else ()

        # `reasoning` is vLLM's field; DeepSeek's API and older servers say `reasoning_content`.
        if reasoning := _text(delta.get("reasoning") or delta.get("reasoning_content")):
            self.reasoning.append(reasoning)
            shown.append(ReasoningDelta(at_ns, reasoning, own()))
        if text := _text(delta.get("content") or choice.get("text")):
            self.text.append(text)
            shown.append(TextDelta(at_ns, text, own()))
        calls = delta.get("tool_calls") or []
        if not isinstance(calls, list):
            raise TypeError("tool_calls is no list")
        for position, raw in enumerate(calls):
            call = _object(raw)
            function = _object(call.get("function") or {})
            index = call.get("index", position)
            if not isinstance(index, int):
                raise TypeError("a tool call's index is no integer")
            fragment = ToolCallFragment(
                at_ns,
                index,
                call_id=_text(call.get("id")) or None,
                name=_text(function.get("name")) or None,
                arguments=_text(function.get("arguments")),
                token_ids=own(),
            )
            assembly = self._calls.setdefault(index, ToolCallAssembly(index, at_ns))
            shown.append(fragment)
            if assembly.add(fragment):
                shown.append(ToolCallComplete(at_ns, assembly.snapshot()))
        return shown

    def _arrive(self, at_ns: int, tokens: int | None) -> None:
        # Two events that one read brought are one arrival: the gap between them is our parsing, not time.
        if self.arrivals and self.arrivals[-1].at_ns == at_ns:
            before = self.arrivals.pop().tokens
            tokens = None if before is None or tokens is None else before + tokens
        self.arrivals.append(Arrival(at_ns=at_ns, tokens=tokens))
        self.last_token_ns = at_ns

    def _server_error(self, chunk: dict[str, JsonValue], at_ns: int) -> list[StreamEvent]:
        error = chunk.get("error") or chunk
        said = error.get("message") if isinstance(error, dict) else error
        code = error.get("code") if isinstance(error, dict) else None
        sentence = f"The server reported an error inside the stream: {said}"
        status = code if isinstance(code, int) else None
        return self._fail(at_ns, ErrorKind.SERVER_ERROR, sentence, json.dumps(chunk), status)

    def _fail(
        self, at_ns: int, kind: ErrorKind, sentence: str, body: str, status: int | None = None
    ) -> list[StreamEvent]:
        self.error = ExchangeError(kind=kind, sentence=sentence, status=status, body=body[:_BODY_LIMIT])
        return [Failure(at_ns, self.error)]


def read_usage(raw: dict[str, JsonValue]) -> Usage:
    """The counts of a `usage` object; whatever is absent stays None."""
    details = raw.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(
        prompt_tokens=_count(raw.get("prompt_tokens")),
        completion_tokens=_count(raw.get("completion_tokens")),
        cached_tokens=_count(cached),
    )


def _count(value: JsonValue) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"a token count is {value!r}")
    return value


def _ids(value: JsonValue) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise TypeError("token ids are no list")
    ids: list[int] = []
    for item in value:
        if isinstance(item, bool) or not isinstance(item, int):
            raise TypeError(f"a token id is {item!r}")
        ids.append(item)
    return tuple(ids)


def _text(value: JsonValue) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"a text is {value!r}")
    return value


def _object(value: JsonValue) -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        raise TypeError(f"an object is {value!r}")
    return value
