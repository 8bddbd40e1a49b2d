"""How far the client's timings are from what a server really sent, on this machine.

    python -m benchmarks.client_calibration

A scripted server in a process of its own stamps every write; the client stamps every arrival; both read the
same clock. Errors are absolute differences in milliseconds, over all streams of a case:

- TTFT: the client's TTFT against (first token's send − request's receipt). The trip of the request and the
  trip of the token are in it.
- ITL: each gap between arrivals against the gap between the same two sends.

The target is a median under 2 ms with 1 to 8 streams. Numbers, not a test: a busy machine shows here, and the
first line says how much, for it has no client in it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from serving.client import AsyncClient, ChatRequest, Client, PromptIds, StreamEvent
from tests.support.stub import Stub, running_stub

_CASES = ("steady", "role-first", "reasoning-then-tools", "several-tokens-a-chunk", "held-back", "split-utf8")
_STREAMS = (1, 8, 64)


@dataclass(frozen=True)
class Errors:
    """Absolute errors in milliseconds."""

    ttft: list[float]
    itl: list[float]


def errors_of(sent_ns: int, arrivals_ns: list[int], log: dict) -> Errors:
    """One call against the stub's log of it; `arrivals_ns` holds one stamp for each send with a token."""
    sends = [at for at, token in log["sends"] if token]
    gaps = zip(pairwise(arrivals_ns), pairwise(sends), strict=True)
    return Errors(
        [abs((arrivals_ns[0] - sent_ns) - (sends[0] - log["received_ns"])) / 1e6],
        [abs((b - a) - (d - c)) / 1e6 for (a, b), (c, d) in gaps],
    )


def joined(parts: Iterable[Errors]) -> Errors:
    """The errors of several calls."""
    every = list(parts)
    return Errors([e for part in every for e in part.ttft], [e for part in every for e in part.itl])


async def run_case(stub: Stub, case: str, streams: int, rounds: int) -> Errors:
    """`rounds` times `streams` calls at once over one client."""
    parts = []
    async with AsyncClient(stub.base_url) as client:

        async def call(name: str) -> tuple[int, list[int]]:
            stream = client.stream(_request(case, name))
            stamps = [event.at_ns async for event in stream if _carries_token(event)]
            origin = stream.exchange.raise_for_error().timings.sent_ns
            return origin, [origin + stamp for stamp in stamps]

        await asyncio.gather(*(client.chat(_request("no-usage", "warm")) for _ in range(streams)))
        for turn in range(rounds):
            names = [f"{case}-{streams}-{turn}-{i}" for i in range(streams)]
            calls = await asyncio.gather(*map(call, names))
            parts += [errors_of(*seen, stub.log(name)) for name, seen in zip(names, calls, strict=True)]
    return joined(parts)


def run_sync(stub: Stub, case: str, rounds: int) -> Errors:
    """The synchronous face, whose thread shares the interpreter with the caller."""
    parts = []
    with Client(stub.base_url) as client:
        client.chat(_request("no-usage", "warm"))
        for turn in range(rounds):
            stream = client.stream(_request(case, name := f"{case}-sync-{turn}"))
            stamps = [event.at_ns for event in stream if _carries_token(event)]
            origin = stream.exchange.raise_for_error().timings.sent_ns
            parts.append(errors_of(origin, [origin + stamp for stamp in stamps], stub.log(name)))
    return joined(parts)


def run_floor(stub: Stub, rounds: int) -> Errors:
    """A bare socket that only reads and stamps: what this machine adds with no client at all."""
    parts = []
    with socket.create_connection(("127.0.0.1", int(stub.base_url.rpartition(":")[2]))) as wire:
        for turn in range(rounds):
            body = json.dumps(_request("steady", name := f"floor-{turn}").body()).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            sent_ns = time.perf_counter_ns()
            wire.sendall(head + body)
            stamps: list[int] = []
            data = b""
            while not data.endswith(b"0\r\n\r\n"):
                data = wire.recv(65536)
                stamps += [time.perf_counter_ns()] * data.count(b'" word"')
            parts.append(errors_of(sent_ns, stamps, stub.log(name)))
    return joined(parts)


def main() -> None:
    """Print one line a case and number of streams."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--rounds", type=int, default=8, help="calls per stream in a case (64 streams: a quarter)"
    )
    rounds = parser.parse_args().rounds
    print(
        f"{'case':24} {'streams':>8} {'TTFT p50':>9} {'p95':>7} {'ITL p50':>9} {'p95':>7}  ms, absolute error"
    )
    worst = 0.0
    with running_stub() as stub:
        _line("steady, bare socket", "1", run_floor(stub, rounds))
        for case in _CASES:
            _line(case, "1 sync", run_sync(stub, case, rounds))
            for streams in _STREAMS:
                errors = asyncio.run(
                    run_case(stub, case, streams, max(1, rounds // (4 if streams > 8 else 1)))
                )
                _line(case, str(streams), errors)
                if streams <= 8:
                    worst = max(worst, statistics.median(errors.ttft), statistics.median(errors.itl))
    print(f"worst median with 1 to 8 streams: {worst:.2f} ms (target: under 2 ms)")


def _request(case: str, name: str) -> ChatRequest:
    return ChatRequest(model=case, messages=({"role": "user", "content": "hi"},), extra={"request_id": name})


def _carries_token(event: StreamEvent) -> bool:
    return not isinstance(event, PromptIds) and bool(getattr(event, "token_ids", None))


def _line(case: str, streams: str, errors: Errors) -> None:
    figures = [figure for values in (errors.ttft, errors.itl) for figure in (_p(values, 50), _p(values, 95))]
    print(
        f"{case:24} {streams:>8} {figures[0]:9.2f} {figures[1]:7.2f} {figures[2]:9.2f} {figures[3]:7.2f}",
        flush=True,
    )


def _p(values: list[float], percent: int) -> float:
    if len(values) < 2:
        return values[0] if values else float("nan")
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


if __name__ == "__main__":
    main()
