"""A chat server in this process whose answers a test writes: it decides what comes when, and what it waits for."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.scripts import DONE, Json, chunk, sse

Answer = Callable[[], Iterable[Json]]
"""The chunks of one answer, each sent when it is given."""


@dataclass
class ToldServer:
    """Answers request n as `answers[n]` says."""

    answers: list[Answer]
    bodies: list[dict] = field(default_factory=list)
    """Of the requests, as they came."""
    url: str = ""
    hung: threading.Event = field(default_factory=threading.Event)
    """Set by an answer that hangs, when it does."""
    ended: threading.Event = field(default_factory=threading.Event)

    def hanging(self) -> Iterator[Json]:
        """An answer that begins and never ends."""
        yield chunk({"role": "assistant", "content": ""})
        self.hung.set()
        self.ended.wait(120)


def called(index: int, name: str, arguments: str) -> Iterator[Json]:
    """A native call in two fragments, the second of which completes it."""
    head = {"index": index, "id": f"id-{index}", "type": "function"}
    yield chunk({"tool_calls": [{**head, "function": {"name": name, "arguments": ""}}]})
    yield chunk({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})


def calling(name: str, arguments: str) -> Answer:
    """A whole answer with one call."""

    def answer() -> Iterator[Json]:
        yield from called(0, name, arguments)
        yield chunk({}, finish="tool_calls")

    return answer


def saying(text: str) -> Answer:
    """A whole answer in words."""
    return lambda: [chunk({"role": "assistant", "content": text}), chunk({}, finish="stop")]


@contextmanager
def told_server(answers: list[Answer]) -> Iterator[ToldServer]:
    """On a free port of this machine until the block ends."""
    told = ToldServer(answers)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            body = json.dumps({"data": [{"id": "told", "max_model_len": 32_000}]}).encode()
            found = self.path == "/v1/models"
            self.send_response(200 if found else 404)
            self.send_header("content-length", str(len(body) if found else 0))
            self.end_headers()
            self.wfile.write(body if found else b"")

        def do_POST(self) -> None:
            told.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            try:
                for part in told.answers[len(told.bodies) - 1]():
                    self.wfile.write(sse(part))
                    self.wfile.flush()
                if not told.hung.is_set():
                    self.wfile.write(DONE)
            except ConnectionError:
                pass  # a client that was killed
            self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    told.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        told.ended.set()
        server.shutdown()
        server.server_close()
