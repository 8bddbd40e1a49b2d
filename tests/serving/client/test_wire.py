from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpcore2
import pytest

from serving.client.turnstile import Turnstile
from serving.client.wire import StampedBackend, StampedStream

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _with_server(
    handler: Handler, use: Callable[[StampedStream], Awaitable[None]], tls: ssl.SSLContext | None = None
) -> None:
    async with await asyncio.start_server(handler, "127.0.0.1", 0, ssl=tls) as server:
        port = server.sockets[0].getsockname()[1]
        stream = await StampedBackend(Turnstile()).connect_tcp("127.0.0.1", port, timeout=5)
        try:
            await use(stream)
        finally:
            await stream.aclose()


async def _two_pieces(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(2)
    writer.write(b"first")
    await reader.readexactly(2)
    writer.write(b"second")
    writer.close()


def test_a_long_wait_before_reading_does_not_move_the_stamp_and_parts_share_it():
    async def use(stream: StampedStream) -> None:
        before = time.perf_counter_ns()
        await stream.write(b"go")
        await asyncio.sleep(0.3)
        late = time.perf_counter_ns()
        assert await stream.read(2, timeout=5) == b"fi"
        stamp = stream.last_read_ns
        assert before <= stream.sent_ns < stamp < late
        assert await stream.read(100, timeout=5) == b"rst"
        assert stream.last_read_ns == stamp

    asyncio.run(_with_server(_two_pieces, use))


def test_a_second_request_on_the_connection_has_its_own_start():
    async def use(stream: StampedStream) -> None:
        await stream.write(b"g")
        first = stream.sent_ns
        await stream.write(b"o")
        assert stream.sent_ns == first
        await stream.read(100, timeout=5)
        await stream.write(b"go")
        assert stream.sent_ns > first
        assert await stream.read(100, timeout=5) == b"second"
        assert await stream.read(100, timeout=5) == b""
        assert stream.get_extra_info("is_readable")

    asyncio.run(_with_server(_two_pieces, use))


def test_silence_is_a_read_timeout():
    async def use(stream: StampedStream) -> None:
        with pytest.raises(httpcore2.ReadTimeout):
            await stream.read(100, timeout=0.05)

    asyncio.run(_with_server(_two_pieces, use))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")
def test_the_stamps_work_under_tls_too(tmp_path: Path):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(certificate, key)
    client_side = ssl.create_default_context(cafile=str(certificate))

    async def use(stream: StampedStream) -> None:
        secured = await stream.start_tls(client_side, "localhost", timeout=5)
        await secured.write(b"go")
        assert await secured.read(100, timeout=5) == b"first"
        assert secured.sent_ns < secured.last_read_ns

    asyncio.run(_with_server(_two_pieces, use, server_side))
    with pytest.raises(httpcore2.ConnectError):  # a name that the certificate does not carry
        asyncio.run(
            _with_server(_two_pieces, lambda s: s.start_tls(client_side, "other", timeout=5), server_side)
        )
