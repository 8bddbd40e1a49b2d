"""The asynchronous client: many recorded calls at once on one event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING

import httpx2

from serving.client.exchange import ErrorKind, Exchange, ExchangeError, Surface
from serving.client.refuse import CpuEngineLimits, check
from serving.client.requests import ChatRequest, CompletionRequest, JsonObject, Request
from serving.client.stream import AsyncExchangeStream, CallFailedError
from serving.client.turnstile import Turnstile
from serving.client.wire import StampedTransport
from serving.text import server_root

if TYPE_CHECKING:
    import openai

IDLE_TIMEOUT_S = 600.0
"""A long prompt on a CPU sends no byte for minutes before its first token."""
_BODY_LIMIT = 4000
# Without these the package would send the user's account names to a stranger's server.
_ACCOUNT_HEADERS = ("OpenAI-Organization", "OpenAI-Project")


class AsyncClient:
    """Streams from an OpenAI-compatible server over the `openai` package, with timings of our own.

    `base_url` is the server's root or its `/v1`; `api_key` None sends a placeholder, never the environment's
    key. No call is retried: a hidden second attempt would be measured as one slow first.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        connect_timeout_s: float = 10.0,
        cpu_limits: CpuEngineLimits | None = None,
        server_fingerprint: str | None = None,
    ) -> None:
        self.base_url = api_root(base_url)
        self._api_key = api_key
        self._idle_timeout_s = idle_timeout_s
        self._cpu_limits = cpu_limits
        self._server_fingerprint = server_fingerprint
        self._turnstile = Turnstile()
        self._openai = _openai_client(
            self.base_url,
            api_key,
            httpx2.Timeout(idle_timeout_s, connect=connect_timeout_s, pool=None),
            self._turnstile,
        )

    def stream(self, request: Request, *, manifest_id: str | None = None) -> AsyncExchangeStream:
        """The events of one call; raises `RefusedRequestError` before anything is sent."""
        body = request.body()
        check(request, body, self._cpu_limits)
        return AsyncExchangeStream(
            self._open,
            request.surface,
            body,
            idle_timeout_s=self._idle_timeout_s,
            server_fingerprint=self._server_fingerprint,
            manifest_id=manifest_id,
        )

    async def chat(self, request: ChatRequest, *, manifest_id: str | None = None) -> Exchange:
        """One chat call read to its end; a failure is in the exchange's `error`."""
        return await self._whole(request, manifest_id)

    async def complete(self, request: CompletionRequest, *, manifest_id: str | None = None) -> Exchange:
        """One token-in call read to its end; a failure is in the exchange's `error`."""
        return await self._whole(request, manifest_id)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._openai.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _whole(self, request: Request, manifest_id: str | None) -> Exchange:
        async with self.stream(request, manifest_id=manifest_id) as stream:
            async for _ in stream:
                pass
        return stream.exchange

    @asynccontextmanager
    async def _open(self, surface: Surface, body: JsonObject) -> AsyncIterator[httpx2.Response]:
        import openai

        await self._turnstile.turn()  # building a request takes milliseconds
        without_account = {name: openai.Omit() for name in _ACCOUNT_HEADERS}
        async with AsyncExitStack() as stack:
            try:
                # The whole body travels as `extra_body`, which the package sends as it is; what goes through
                # its own parameters is rewritten by its types, one token id at a time.
                if surface is Surface.CHAT:
                    chat = self._openai.chat.completions.with_streaming_response.create(
                        model="", messages=[], stream=True, extra_body=body, extra_headers=without_account
                    )
                    response = (await stack.enter_async_context(chat)).http_response
                else:
                    completion = self._openai.completions.with_streaming_response.create(
                        model="", prompt="", stream=True, extra_body=body, extra_headers=without_account
                    )
                    response = (await stack.enter_async_context(completion)).http_response
            except openai.APIStatusError as exc:
                raise CallFailedError(_status_error(exc, self._api_key)) from exc
            except openai.APIConnectionError as exc:  # APITimeoutError is one
                raise CallFailedError(_connection_error(exc, self.base_url, self._idle_timeout_s)) from exc
            await _require_event_stream(response)
            yield response


def api_root(base_url: str) -> str:
    """The URL that the API's paths follow: `base_url`, with `/v1` added where it is missing."""
    return f"{server_root(base_url)}/v1"


def _openai_client(
    base_url: str, api_key: str | None, timeout: httpx2.Timeout, turnstile: Turnstile
) -> openai.AsyncOpenAI:
    import openai  # half a second that a program which only reads records need not wait for

    return openai.AsyncOpenAI(
        base_url=base_url,
        api_key=api_key or "none",
        max_retries=0,
        timeout=timeout,
        default_headers={"Accept-Encoding": "identity"},  # a compressor holds tokens back
        http_client=httpx2.AsyncClient(
            transport=StampedTransport(turnstile), timeout=timeout, trust_env=False
        ),
    )


async def _require_event_stream(response: httpx2.Response) -> None:
    kind = response.headers.get("content-type", "")
    if kind.partition(";")[0].strip() == "text/event-stream":
        return
    body = (await response.aread()).decode("utf-8", errors="replace")[:_BODY_LIMIT]
    sentence = (
        f"Expected an event stream, got {kind or 'no content type'}: is this an OpenAI-compatible server?"
    )
    raise CallFailedError(ExchangeError(kind=ErrorKind.BAD_DATA, sentence=sentence, body=body))


def _status_error(exc: openai.APIStatusError, api_key: str | None) -> ExchangeError:
    status, text = exc.status_code, exc.response.text
    # Servers that refuse a key quote it, and what they say is stored and shown.
    said = (text.replace(api_key, "[API key]") if api_key else text)[:_BODY_LIMIT]
    sentence = f"Expected a stream, got HTTP {status}: {said.strip()[:300] or exc.response.reason_phrase}"
    return ExchangeError(kind=ErrorKind.HTTP_STATUS, sentence=sentence, status=status, body=said)


def _connection_error(exc: openai.APIConnectionError, base_url: str, idle_timeout_s: float) -> ExchangeError:
    cause = exc.__cause__
    if isinstance(cause, httpx2.ReadTimeout):
        sentence = f"Expected an answer from {base_url}, got no byte for {idle_timeout_s:g} s"
        return ExchangeError(kind=ErrorKind.SILENCE, sentence=sentence)
    if isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout):
        sentence = (
            f"Expected a server at {base_url}, but no connection could be made ({cause}): is it running?"
        )
        return ExchangeError(kind=ErrorKind.UNREACHABLE, sentence=sentence)
    sentence = f"Expected an answer from {base_url}, but the connection was cut: {cause or exc}"
    return ExchangeError(kind=ErrorKind.CUT, sentence=sentence)
