"""One streaming call, asynchronous: typed events while it runs, the `Exchange` when it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol

import httpx2

from serving.client.events import Failure, StreamEvent
from serving.client.exchange import ErrorKind, Exchange, ExchangeError, Surface, Timings
from serving.client.fold import ReplyFold
from serving.client.requests import JsonObject
from serving.client.sse import SseDecoder
from serving.client.wire import StampedStream
from serving.errors import LabError

_DRAIN_S = 0.5
_BODY_LIMIT = 4000


class CallFailedError(Exception):
    """Raised by an opener for a call that brought no stream; never leaves this room."""

    def __init__(self, error: ExchangeError) -> None:
        super().__init__(error.sentence)
        self.error = error


class Opener(Protocol):
    """Sends the body and gives the response as soon as its headers are there, or raises `CallFailedError`."""

    def __call__(
        self, surface: Surface, body: JsonObject
    ) -> AbstractAsyncContextManager[httpx2.Response]: ...


class AsyncExchangeStream:
    """The events of one call, in order of arrival; nothing is sent before the first is asked for.

    Iterate it to its end, or close it (`async with`, `aclose`) to cancel the call. Either way `exchange` then
    holds what arrived. A failure is the last event and `exchange.error`, not an exception.
    """

    def __init__(
        self,
        opener: Opener,
        surface: Surface,
        body: JsonObject,
        *,
        idle_timeout_s: float,
        server_fingerprint: str | None = None,
        manifest_id: str | None = None,
    ) -> None:
        self._opener = opener
        self._surface = surface
        self._body = body
        self._idle_timeout_s = idle_timeout_s
        self._server_fingerprint = server_fingerprint
        self._manifest_id = manifest_id
        self._fold = ReplyFold()
        self._started_at = datetime.now(UTC)
        self._called_ns = time.perf_counter_ns()
        self._sent_ns: int | None = None
        self._first_byte_ns: int | None = None
        self._exchange: Exchange | None = None
        self._events = self._run()

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self

    async def __anext__(self) -> StreamEvent:
        return await anext(self._events)

    async def __aenter__(self) -> AsyncExchangeStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel the call if it still runs; then `exchange` is there."""
        await self._events.aclose()
        if self._exchange is None:  # closed before the first event was asked for: nothing was sent
            self._finish(time.perf_counter_ns(), _cancelled())

    @property
    def exchange(self) -> Exchange:
        """The finished record; a `LabError` while the call still runs."""
        if self._exchange is None:
            raise LabError("Expected a finished call, got one still running: read it to its end or close it.")
        return self._exchange

    async def _run(self) -> AsyncGenerator[StreamEvent, None]:
        self._started_at = datetime.now(UTC)
        self._called_ns = time.perf_counter_ns()
        error: ExchangeError | None = None
        try:
            async with (
                self._opener(self._surface, self._body) as response,
                aclosing(self._read(response)) as events,
            ):
                async for event in events:
                    yield event
        except (asyncio.CancelledError, GeneratorExit):
            self._finish(time.perf_counter_ns(), _cancelled())
            raise
        except CallFailedError as failed:
            error = failed.error
        except httpx2.ReadTimeout:
            error = _error(ErrorKind.SILENCE, f"Expected bytes, got none for {self._idle_timeout_s:g} s")
        except httpx2.TransportError as cut:
            error = _error(ErrorKind.CUT, f"Expected the stream to go on to [DONE], but it was cut: {cut}")
        if error is not None:
            now = time.perf_counter_ns()
            self._finish(now, error)
            yield Failure(now - self._origin_ns, error)

    async def _read(self, response: httpx2.Response) -> AsyncGenerator[StreamEvent, None]:
        wire = response.extensions["network_stream"]
        if not isinstance(wire, StampedStream):
            raise TypeError(f"expected a stamped connection, got {type(wire).__name__}")
        self._sent_ns = sent_ns = wire.sent_ns
        fold, decoder = self._fold, SseDecoder()
        chunks = response.aiter_raw()
        async for chunk in chunks:
            at_ns = wire.last_read_ns
            if self._first_byte_ns is None:
                self._first_byte_ns = at_ns - sent_ns
            for item in decoder.feed(chunk, at_ns):
                for event in fold.feed(item.data, item.at_ns - sent_ns):
                    yield event
                if fold.done or fold.error is not None:
                    self._finish(item.at_ns, fold.error)
                    await _drain(chunks)
                    return
        for item in decoder.close(wire.last_read_ns):
            for event in fold.feed(item.data, item.at_ns - sent_ns):
                yield event
        if not fold.done and fold.error is None:
            raise CallFailedError(
                _error(ErrorKind.CUT, "Expected the stream to go on to [DONE], but the server ended it early")
            )
        self._finish(wire.last_read_ns, fold.error)

    @property
    def _origin_ns(self) -> int:
        return self._called_ns if self._sent_ns is None else self._sent_ns

    def _finish(self, ended_ns: int, error: ExchangeError | None) -> None:
        if self._exchange is not None:
            return  # cancelled while the finished call's connection was being drained
        fold = self._fold
        self._exchange = Exchange(
            surface=self._surface,
            request=self._body,
            prompt_token_ids=fold.prompt_token_ids,
            output_token_ids=fold.output_token_ids,
            text="".join(fold.text),
            reasoning="".join(fold.reasoning),
            tool_calls=fold.tool_calls,
            finish_reason=fold.finish_reason,
            usage=fold.usage,
            metrics=fold.metrics,
            timings=Timings(
                started_at=self._started_at,
                sent_ns=self._origin_ns,
                connect_ns=self._origin_ns - self._called_ns,
                first_byte_ns=self._first_byte_ns,
                first_token_ns=fold.arrivals[0].at_ns if fold.arrivals else None,
                last_token_ns=fold.last_token_ns,
                done_ns=ended_ns - self._origin_ns,
                arrivals=tuple(fold.arrivals),
            ),
            server_fingerprint=self._server_fingerprint,
            manifest_id=self._manifest_id,
            error=error,
        )


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    # The connection can be used again only if the body was read to its end, which follows [DONE] at once.
    # A server that keeps it open costs a new connection next time, no more.
    try:
        async with asyncio.timeout(_DRAIN_S):
            async for _ in chunks:
                pass
    except (TimeoutError, httpx2.TransportError):
        return


def _error(kind: ErrorKind, sentence: str, body: str | None = None) -> ExchangeError:
    return ExchangeError(kind=kind, sentence=sentence, body=None if body is None else body[:_BODY_LIMIT])


def _cancelled() -> ExchangeError:
    return _error(ErrorKind.CANCELLED, "The caller stopped the call before it ended")
