"""The synchronous face: the same calls from plain code, also inside a notebook whose loop already runs."""

from __future__ import annotations

import asyncio
import queue
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import TypeVar

from serving.client.async_client import IDLE_TIMEOUT_S, AsyncClient
from serving.client.events import StreamEvent
from serving.client.exchange import Exchange
from serving.client.refuse import CpuEngineLimits
from serving.client.requests import ChatRequest, CompletionRequest, Request
from serving.client.stream import AsyncExchangeStream
from serving.errors import LabError

ResultT = TypeVar("ResultT")


class InterruptedExchange(KeyboardInterrupt):
    """Ctrl-C during a whole call; `exchange` holds what had arrived."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self.exchange = exchange


class Client:
    """`AsyncClient` on a thread of its own, so that bytes are stamped while the caller computes.

    Use it as a context manager, or `close` it; a forgotten one ends with the program. Arguments are
    `AsyncClient`'s.
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
        self._client = AsyncClient(
            base_url,
            api_key,
            idle_timeout_s=idle_timeout_s,
            connect_timeout_s=connect_timeout_s,
            cpu_limits=cpu_limits,
            server_fingerprint=server_fingerprint,
        )
        self.base_url = self._client.base_url
        loop, thread = _start_loop()
        self._loop = loop
        self._finalizer = weakref.finalize(self, _end_loop, self._client, loop, thread)

    def stream(self, request: Request, *, manifest_id: str | None = None) -> ExchangeStream:
        """Send now, and give the events as they arrive; several streams may run at once.

        Raises `RefusedRequestError` before anything is sent.
        """
        if not self._finalizer.alive:
            raise LabError("Expected an open client, got a closed one: make a new Client.")
        return ExchangeStream(self._client.stream(request, manifest_id=manifest_id), self._loop)

    def chat(self, request: ChatRequest, *, manifest_id: str | None = None) -> Exchange:
        """One chat call read to its end; a failure is in the exchange's `error`."""
        return self._whole(request, manifest_id)

    def complete(self, request: CompletionRequest, *, manifest_id: str | None = None) -> Exchange:
        """One token-in call read to its end; a failure is in the exchange's `error`."""
        return self._whole(request, manifest_id)

    def run(self, work: Callable[[AsyncClient], Coroutine[None, None, ResultT]]) -> ResultT:
        """Run asynchronous work with the client beneath, such as many calls at once, and wait for its result.

        It runs on this client's own loop, so the caller's thread delays no stamp. Ctrl-C cancels it.
        """
        if not self._finalizer.alive:
            raise LabError("Expected an open client, got a closed one: make a new Client.")
        future = asyncio.run_coroutine_threadsafe(work(self._client), self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what still runs, close the connections, end the thread; harmless when repeated."""
        self._finalizer()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _whole(self, request: Request, manifest_id: str | None) -> Exchange:
        with self.stream(request, manifest_id=manifest_id) as stream:
            try:
                for _ in stream:
                    pass
            except KeyboardInterrupt as interrupt:
                stream.close()
                raise InterruptedExchange(stream.exchange) from interrupt
        return stream.exchange


class ExchangeStream:
    """The events of one call for a plain `for`; afterwards `exchange`.

    Ctrl-C inside the loop's wait, leaving a `with` block, or `close` cancels the call; what arrived
    is then in `exchange`. After a bare `break` the call runs on until the client closes.
    """

    def __init__(self, stream: AsyncExchangeStream, loop: asyncio.AbstractEventLoop) -> None:
        self._stream = stream
        # One queue each, unbounded: the network never waits for the caller.
        self._queue: queue.SimpleQueue[StreamEvent | None] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._exhausted = False
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        self._stop_asked = False
        self._future: Future[None] = asyncio.run_coroutine_threadsafe(self._pump(), loop)

    def __iter__(self) -> Iterator[StreamEvent]:
        return self

    def __next__(self) -> StreamEvent:
        if self._exhausted:
            raise StopIteration
        try:
            event = self._queue.get()
        except KeyboardInterrupt:
            self.close()
            raise
        if event is not None:
            return event
        self._exhausted = True
        if not self._future.cancelled() and (problem := self._future.exception()) is not None:
            raise problem  # a defect of ours, not of the server: those are events
        raise StopIteration

    def __enter__(self) -> ExchangeStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancel the call if it still runs, and wait until its connection is closed."""
        if not self._ended.is_set():
            self._loop.call_soon_threadsafe(self._stop)
            self._ended.wait()

    @property
    def exchange(self) -> Exchange:
        """The finished record; a `LabError` while the call still runs."""
        return self._stream.exchange

    def _stop(self) -> None:
        # A task cancelled before its first step never runs at all, and nobody would be woken: the flag
        # stops one that has not begun.
        self._stop_asked = True
        if self._task is not None:
            self._task.cancel()

    async def _pump(self) -> None:
        self._task = asyncio.current_task()
        try:
            async with self._stream as stream:
                if self._stop_asked:
                    return
                async for event in stream:
                    self._queue.put(event)
        finally:
            self._ended.set()
            # After this task's result is set, so that whoever wakes up finds it.
            asyncio.get_running_loop().call_soon(self._queue.put, None)


def _start_loop() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    started: Future[asyncio.AbstractEventLoop] = Future()

    def serve() -> None:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            loop.call_soon(started.set_result, loop)
            loop.run_forever()

    thread = threading.Thread(target=serve, name="ctxlab-client", daemon=True)
    thread.start()
    return started.result(), thread


def _end_loop(client: AsyncClient, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    async def shut_down() -> None:
        await asyncio.sleep(0)  # lets calls just made begin, so that their cancellation reaches them
        calls = asyncio.all_tasks(loop) - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await client.aclose()
        loop.call_soon(loop.stop)

    ended = asyncio.run_coroutine_threadsafe(shut_down(), loop)
    # The collector may drop a forgotten client on the loop's own thread, which cannot wait for itself.
    if threading.current_thread() is not thread:
        ended.result()
        thread.join()
