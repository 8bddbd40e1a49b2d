"""What a stream tells, one typed event at a time.

`at_ns` is nanoseconds from the moment the request was handed to the socket to the moment the bytes that
completed the event arrived. `token_ids` belong to the chunk: the first event of a chunk carries them all,
its further events carry `()`, and `None` means that the server did not say. So the ids of all events, joined,
are the output.
"""

from __future__ import annotations

from dataclasses import dataclass

from serving.client.exchange import ExchangeError, ReceivedToolCall, Usage


@dataclass(frozen=True, slots=True)
class PromptIds:
    """The prompt as the engine read it."""

    at_ns: int
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's reasoning."""

    at_ns: int
    text: str
    token_ids: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer."""

    at_ns: int
    text: str
    token_ids: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class ToolCallFragment:
    """A piece of a tool call: `name` and `call_id` come once, `arguments` in pieces of JSON text."""

    at_ns: int
    index: int
    call_id: str | None
    name: str | None
    arguments: str
    token_ids: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class ToolCallComplete:
    """A tool call whose JSON arguments have closed: it can run now, before the stream ends."""

    at_ns: int
    call: ReceivedToolCall


@dataclass(frozen=True, slots=True)
class HeldTokens:
    """Tokens that arrived while the server's parser showed no text for them yet (or never will)."""

    at_ns: int
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The server's own count."""

    at_ns: int
    usage: Usage


@dataclass(frozen=True, slots=True)
class Finish:
    """The model stopped: `reason` is the server's word ("stop", "length", "tool_calls")."""

    at_ns: int
    reason: str


@dataclass(frozen=True, slots=True)
class Failure:
    """The stream broke; no event follows."""

    at_ns: int
    error: ExchangeError


StreamEvent = (
    PromptIds
    | ReasoningDelta
    | TextDelta
    | ToolCallFragment
    | ToolCallComplete
    | HeldTokens
    | UsageReport
    | Finish
    | Failure
)
