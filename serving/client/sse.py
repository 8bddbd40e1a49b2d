"""Server-sent events from stamped byte chunks."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StampedData:
    """The `data` of one event, with the arrival of the chunk that completed it."""

    data: str
    at_ns: int
    """`time.perf_counter_ns()` of that chunk."""


@dataclass(slots=True)
class SseDecoder:
    """An incremental decoder: feed it byte chunks in order, each with its arrival.

    Bytes are decoded a whole line at a time, so a UTF-8 character split over two chunks is read right.
    Lines end in LF or CRLF, as every known OpenAI-compatible server sends them; comments and the fields
    `event`, `id` and `retry` carry nothing for us and are dropped. Undecodable bytes become U+FFFD: the
    JSON reader after this one says what is wrong with them.
    Source: WHATWG HTML, "Interpreting an event stream".
    """

    _pending: bytearray = field(default_factory=bytearray)
    _data: list[str] = field(default_factory=list)

    def feed(self, chunk: bytes, at_ns: int) -> list[StampedData]:
        """Events that `chunk` completes, in order; often none, sometimes several."""
        self._pending += chunk
        *lines, rest = self._pending.split(b"\n")
        self._pending = rest
        done: list[StampedData] = []
        for raw in lines:
            line = raw.removesuffix(b"\r")
            if line:
                self._take(line)
            elif self._data:
                done.append(StampedData("\n".join(self._data), at_ns))
                self._data = []
        return done

    def close(self, at_ns: int) -> list[StampedData]:
        """The last event, when the server ended the body without the blank line that should close it."""
        if not self._data:
            return []
        data, self._data = "\n".join(self._data), []
        return [StampedData(data, at_ns)]

    def _take(self, line: bytes | bytearray) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" ").decode("utf-8", errors="replace"))
