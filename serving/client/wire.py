"""An HTTP transport whose clock is the arrival of bytes at the socket.

The stamp is taken in the event loop's own read callback, before any task wakes up, decodes or parses. So a
token's time does not grow with the number of streams that wait to be parsed, nor with a slow consumer.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import contextmanager

import httpcore2
import httpx2

_CORE_ERRORS = (
    httpcore2.TimeoutException,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.UnsupportedProtocol,
)
SocketOption = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]


class StampedTransport(httpx2.AsyncBaseTransport):
    """HTTP/1.1 over TCP or TLS, no proxies, no retries.

    A response's extension `network_stream` is its `StampedStream`.
    """

    def __init__(self, *, max_connections: int | None = None) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            max_connections=max_connections, keepalive_expiry=5.0, network_backend=StampedBackend()
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        core_request = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _as_httpx_errors():
            response = await self._pool.handle_async_request(core_request)
        if not isinstance(response.stream, AsyncIterable):
            raise TypeError("the connection pool gave a body that cannot be read asynchronously")
        return httpx2.Response(
            status_code=response.status,
            headers=response.headers,
            stream=_Body(response),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


class StampedStream(httpcore2.AsyncNetworkStream, asyncio.Protocol):
    """One connection; remembers when it last handed over bytes and when its current request began."""

    sent_ns: int = 0
    """`perf_counter_ns` of the first byte written since the last byte was received."""
    last_read_ns: int = 0
    """`perf_counter_ns` of the arrival of what the last `read` returned."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._chunks: deque[tuple[int, bytes]] = deque()
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = asyncio.Event()
        self._ended = False
        self._failure: Exception | None = None
        self._answered = True

    # The event loop's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError(f"expected a stream transport, got {type(transport).__name__}")
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._chunks.append((time.perf_counter_ns(), data))
        self._arrived.set()

    def eof_received(self) -> bool:
        self._ended = True
        self._arrived.set()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._failure = exc
        self._arrived.set()
        self._writable.set()
        self._lost.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # The HTTP library's side.

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """The bytes of one arrival (never two joined); empty at the end of the stream."""
        if not self._chunks and not self._ended:
            self._arrived.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._arrived.wait()
            except TimeoutError as exc:
                raise httpcore2.ReadTimeout(f"no byte for {timeout} s") from exc
        if not self._chunks:
            if self._failure is not None:
                raise httpcore2.ReadError(str(self._failure)) from self._failure
            return b""
        at_ns, data = self._chunks.popleft()
        if len(data) > max_bytes:
            self._chunks.appendleft((at_ns, data[max_bytes:]))
            data = data[:max_bytes]
        self.last_read_ns = at_ns
        self._answered = True
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not buffer:
            return
        if self._transport is None or self._transport.is_closing():
            raise httpcore2.WriteError("the connection is closed")
        if self._answered:
            self._answered = False
            self.sent_ns = time.perf_counter_ns()
        self._transport.write(buffer)
        try:
            async with asyncio.timeout(timeout):
                await self._writable.wait()
        except TimeoutError as exc:
            raise httpcore2.WriteTimeout(f"the server took no byte for {timeout} s") from exc

    async def aclose(self) -> None:
        if self._transport is None:
            return
        # `abort`, not `close`: a TLS goodbye that the other side never answers must not hold us.
        self._transport.abort()
        await self._lost.wait()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> StampedStream:
        if self._transport is None:
            raise httpcore2.ConnectError("TLS needs an open connection")
        try:
            async with asyncio.timeout(timeout):
                secured = await asyncio.get_running_loop().start_tls(
                    self._transport, self, ssl_context, server_hostname=server_hostname
                )
        except TimeoutError as exc:
            raise httpcore2.ConnectTimeout(f"no TLS handshake within {timeout} s") from exc
        except OSError as exc:  # ssl.SSLError is one
            raise httpcore2.ConnectError(str(exc)) from exc
        if secured is None:
            raise httpcore2.ConnectError("the connection was lost during the TLS handshake")
        self._transport = secured
        return self

    def get_extra_info(self, info: str) -> object:
        if info == "is_readable":  # asked of an idle connection: readable then means closed by the server
            return self._ended or bool(self._chunks)
        if self._transport is None:
            return None
        asked = {"client_addr": "sockname", "server_addr": "peername", "socket": "socket"}.get(info, info)
        return self._transport.get_extra_info(asked)


class StampedBackend(httpcore2.AsyncNetworkBackend):
    """Opens `StampedStream`s on the running asyncio loop."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> StampedStream:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                _, stream = await loop.create_connection(
                    StampedStream,
                    host,
                    port,
                    local_addr=(local_address, 0) if local_address is not None else None,
                )
        except TimeoutError as exc:
            raise httpcore2.ConnectTimeout(f"no connection within {timeout} s") from exc
        except OSError as exc:
            raise httpcore2.ConnectError(str(exc)) from exc
        return stream

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[SocketOption] | None = None
    ) -> StampedStream:
        raise httpcore2.ConnectError(f"expected a TCP address, got the Unix socket {path}")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Body(httpx2.AsyncByteStream):
    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _as_httpx_errors():
            async for part in self._response.aiter_stream():
                yield part

    async def aclose(self) -> None:
        await self._response.aclose()


@contextmanager
def _as_httpx_errors() -> Iterator[None]:
    # The two libraries name their errors alike; the caller knows httpx's.
    try:
        yield
    except _CORE_ERRORS as exc:
        raise getattr(httpx2, type(exc).__name__, httpx2.TransportError)(str(exc)) from exc
