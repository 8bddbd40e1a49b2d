"""An OpenAI-compatible server that follows a script to the millisecond and reports what it really sent when.

It runs in a process of its own (`python -m tests.support.stub_server`): a server that shared the client's
interpreter would share its pauses too, and they would cancel out. `time.perf_counter_ns` reads the same clock
in both processes on Linux and macOS, so their stamps compare directly.

Raw asyncio and no framework: what is written to the socket, and when, is the subject.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from dataclasses import dataclass, field

from tests.support.lying import LIARS
from tests.support.personas import PERSONAS, Persona, Reply
from tests.support.scripts import SCRIPTS, End, Script, Send

_COMPLETIONS = ("/v1/chat/completions", "/v1/completions")


@dataclass
class Log:
    """What happened to one request."""

    received_ns: int
    headers: dict[str, str]
    body: dict[str, object]
    sends: list[tuple[int, bool]] = field(default_factory=list)
    closed_by_client: bool = False


class StubServer:
    def __init__(self, persona: Persona | None) -> None:
        self._persona = persona
        self._logs: dict[str, Log] = {}
        self._all: list[Log] = []

    async def serve(self) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, limit=2**26, backlog=256)
        print(server.sockets[0].getsockname()[1], flush=True)
        # The parent's end of the pipe closes when it dies, however it dies.
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
        }
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        received_ns = time.perf_counter_ns()
        body = json.loads(raw) if raw else {}
        if method == "GET" and path.startswith("/_log/"):
            log = self._logs.get(path.removeprefix("/_log/"))
            _write(writer, Reply(404 if log is None else 200, {} if log is None else vars(log)))
            return True
        if method == "GET" and path == "/_logs":
            # Everything since the last look: clients that are not ours name no request.
            _write(writer, Reply(200, [vars(log) for log in self._all]))
            self._all.clear()
            return True
        script = None
        if method == "POST" and path in _COMPLETIONS and body.get("model") in SCRIPTS:
            script = SCRIPTS[body["model"]]()
        elif self._persona is not None:
            answer = self._persona.answer(method, path, body)
            if isinstance(answer, Reply):
                _write(writer, answer)
                return True
            script = answer
        if script is None:
            _write(writer, Reply(404, {"error": {"message": f"no {path} here"}}))
            return True
        log = Log(received_ns, headers, body)
        self._logs[str(body.get("request_id", "last"))] = log
        self._all.append(log)
        return await self._play(script, log, reader, writer)

    async def _play(
        self, script: Script, log: Log, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        if script.status:
            writer.write(
                f"HTTP/1.1 {script.status} X\r\ncontent-type: {script.content_type}\r\n"
                "transfer-encoding: chunked\r\n\r\n".encode()
            )
        for send in script.sends:
            await _until(log.received_ns + round(send.at_ms * 1e6))
            if reader.at_eof():
                log.closed_by_client = True
                return False
            self._send(send, log, writer)
        if script.end is End.HANG:
            await reader.read()
            log.closed_by_client = True
            return False
        if script.end is End.CUT:
            writer.transport.abort()
            return False
        writer.write(b"0\r\n\r\n")
        return True

    def _send(self, send: Send, log: Log, writer: asyncio.StreamWriter) -> None:
        log.sends.append((time.perf_counter_ns(), send.token))
        writer.write(b"%x\r\n%b\r\n" % (len(send.data), send.data))


async def _until(deadline_ns: int) -> None:
    while (left_ns := deadline_ns - time.perf_counter_ns()) > 0:
        await asyncio.sleep(left_ns / 1e9)


def _write(writer: asyncio.StreamWriter, reply: Reply) -> None:
    data = reply.body.encode() if isinstance(reply.body, str) else json.dumps(reply.body).encode()
    kind = "text/plain" if isinstance(reply.body, str) else "application/json"
    extra = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
    writer.write(
        f"HTTP/1.1 {reply.status} X\r\ncontent-type: {kind}\r\n{extra}"
        f"content-length: {len(data)}\r\n\r\n".encode()
        + data
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--persona", choices=sorted({**PERSONAS, **LIARS}), default=None)
    options = parser.parse_args()
    asyncio.run(StubServer(({**PERSONAS, **LIARS})[options.persona]() if options.persona else None).serve())
