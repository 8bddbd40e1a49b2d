"""One recorded call: what was sent, what came back, and when the bytes arrived."""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise

from pydantic import AwareDatetime, BaseModel, ConfigDict, JsonValue

from serving.errors import LabError

_NS = 1e-9


class Surface(StrEnum):
    """The way into the server."""

    CHAT = "chat"
    """`/v1/chat/completions`: messages; the server renders the template."""
    TOKEN_IN = "token-in"  # noqa: S105 (no password)
    """`/v1/completions`: token ids; no template and no rewriting on the server."""


class ErrorKind(StrEnum):
    """How a call failed."""

    UNREACHABLE = "unreachable"
    """No connection could be made."""
    HTTP_STATUS = "http_status"
    """The server answered 4xx or 5xx."""
    SERVER_ERROR = "server_error"
    """An error object came inside the stream."""
    CUT = "cut"
    """The connection or the body ended before `[DONE]`."""
    SILENCE = "silence"
    """No byte came for longer than the idle timeout."""
    BAD_DATA = "bad_data"
    """Something came that is no OpenAI stream: wrong content type, invalid JSON, wrong shape."""
    CANCELLED = "cancelled"
    """The caller stopped it."""


class ExchangeError(BaseModel):
    """Why a call failed, for a program (`kind`, `status`) and for a person (`sentence`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: ErrorKind
    sentence: str
    status: int | None = None
    """The HTTP status, or the code inside a streamed error object."""
    body: str | None = None
    """The server's own words, cut to 4,000 characters."""


class ReceivedToolCall(BaseModel):
    """A tool call as it came over the wire."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    index: int
    id: str | None
    name: str | None
    arguments: str
    """JSON text, byte for byte as the fragments spelt it; a prefix of it when `closed_ns` is None."""
    first_ns: int
    """Arrival of the first fragment, nanoseconds after sending."""
    closed_ns: int | None
    """Arrival of the fragment that closed the JSON; None: it never closed."""


class Usage(BaseModel):
    """The server's token counts; None where it did not report one, which is not the same as 0."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None


class Arrival(BaseModel):
    """Tokens that arrived together: `tokens` is None when the server sends no token ids."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at_ns: int
    tokens: int | None


class Timings(BaseModel):
    """When things happened; every `_ns` but `sent_ns` counts nanoseconds from `sent_ns`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    started_at: AwareDatetime
    """Wall clock at the call; for ordering records, never for durations."""
    sent_ns: int
    """`time.perf_counter_ns()` when the first byte of the request was handed to the socket."""
    connect_ns: int
    """From the call to `sent_ns`: building the body, waiting for or opening a connection."""
    first_byte_ns: int | None
    """The first byte of the response body."""
    first_token_ns: int | None
    """The first token of any kind: reasoning, text, tool call or held by the parser."""
    last_token_ns: int | None
    """The last token; without token ids, the finish chunk, whose end token is invisible."""
    done_ns: int
    """`[DONE]`, or the moment the call failed."""
    arrivals: tuple[Arrival, ...]


class Exchange(BaseModel):
    """One call to a model server, complete enough to recount it without the server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    surface: Surface
    request: dict[str, JsonValue]
    """The JSON body as sent. Headers, and so the API key, are no part of it."""
    prompt_token_ids: tuple[int, ...] | None
    """As the server reports them (asked for with `return_token_ids`)."""
    output_token_ids: tuple[int, ...] | None
    """None as soon as one token came without its id: a list with a hole would be a lie."""
    text: str
    reasoning: str
    tool_calls: tuple[ReceivedToolCall, ...]
    finish_reason: str | None
    usage: Usage | None
    metrics: dict[str, JsonValue] | None
    """vLLM's per-request `metrics` object, when the server sends it."""
    timings: Timings
    server_fingerprint: str | None = None
    manifest_id: str | None = None
    error: ExchangeError | None = None

    @property
    def output_tokens(self) -> int | None:
        """Output tokens by the server's count, else by the ids; None when neither came."""
        if self.usage is not None and self.usage.completion_tokens is not None:
            return self.usage.completion_tokens
        return None if self.output_token_ids is None else len(self.output_token_ids)

    @property
    def cached_share(self) -> float | None:
        """Cached tokens / prompt tokens as the server reports them; None when it does not."""
        usage = self.usage
        if usage is None or usage.cached_tokens is None or not usage.prompt_tokens:
            return None
        return usage.cached_tokens / usage.prompt_tokens

    @property
    def ttft_s(self) -> float | None:
        """Seconds from sending to the first token of any kind; None when none came."""
        first = self.timings.first_token_ns
        return None if first is None else first * _NS

    @property
    def latency_s(self) -> float | None:
        """Seconds from sending to the last token; None for a call that failed or brought no token."""
        last = self.timings.last_token_ns
        return None if last is None or self.error is not None else last * _NS

    @property
    def tpot_s(self) -> float | None:
        """Seconds per output token after the first: (latency − TTFT) / (output tokens − 1).

        None with fewer than two tokens, an unknown count, or a failed call.
        """
        tokens, ttft, latency = self.output_tokens, self.ttft_s, self.latency_s
        if tokens is None or tokens < 2 or ttft is None or latency is None:
            return None
        return (latency - ttft) / (tokens - 1)

    @property
    def itl_s(self) -> tuple[float, ...]:
        """Seconds between successive arrivals; a chunk of k tokens is one arrival, so one gap."""
        return tuple((b.at_ns - a.at_ns) * _NS for a, b in pairwise(self.timings.arrivals))

    def raise_for_error(self) -> Exchange:
        """The exchange itself, or a `LabError` with its error's sentence."""
        if self.error is not None:
            raise LabError(self.error.sentence)
        return self
