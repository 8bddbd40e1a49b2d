"""How far the client's timings are from what a server really sent, on this machine.

    python -m benchmarks.client_calibration

A scripted server in a process of its own stamps every write; the client stamps every arrival; both read the
same clock. Errors are absolute differences in milliseconds, over all streams of a case:

- TTFT: the client's TTFT against (first token's send − request's receipt). The trip of the request and the
  trip of the token are in it.
- ITL: each gap between arrivals against the gap between the same two sends.

The target is a median under 2 ms with 1 to 8 streams. Numbers, not a test: a busy machine shows here.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from dataclasses import dataclass
from itertools import pairwise

from serving.client import AsyncClient, ChatRequest, Client, Exchange
from tests.support.stub import Stub, running_stub

_CASES = ("steady", "role-first", "reasoning-then-tools", "several-tokens-a-chunk", "held-back", "split-utf8")
_STREAMS = (1, 8, 64)


@dataclass(frozen=True)
class Errors:
    """Absolute errors in milliseconds."""

    ttft: list[float]
    itl: list[float]


def errors_of(exchange: Exchange, log: dict) -> Errors:
    """One exchange against the stub's log of it."""
    sends = [at for at, token in log["sends"] if token]
    origin = exchange.timings.sent_ns
    arrivals = [origin + arrival.at_ns for arrival in exchange.timings.arrivals]
    ttft = abs((arrivals[0] - origin) - (sends[0] - log["received_ns"])) / 1e6
    if len(arrivals) != len(sends):  # the kernel joined two writes; their gap cannot be compared
        return Errors([ttft], [])
    gaps = zip(pairwise(arrivals), pairwise(sends), strict=True)
    return Errors([ttft], [abs((b - a) - (d - c)) / 1e6 for (a, b), (c, d) in gaps])


async def run_case(stub: Stub, case: str, streams: int, rounds: int) -> Errors:
    """`rounds` times `streams` calls at once over one client."""
    ttft: list[float] = []
    itl: list[float] = []
    async with AsyncClient(stub.base_url) as client:
        await asyncio.gather(*(client.chat(_request("no-usage", "warm")) for _ in range(streams)))
        for turn in range(rounds):
            names = [f"{case}-{streams}-{turn}-{i}" for i in range(streams)]
            exchanges = await asyncio.gather(*(client.chat(_request(case, name)) for name in names))
            for name, exchange in zip(names, exchanges, strict=True):
                errors = errors_of(exchange.raise_for_error(), stub.log(name))
                ttft += errors.ttft
                itl += errors.itl
    return Errors(ttft, itl)


def run_sync(stub: Stub, case: str, rounds: int) -> Errors:
    """The synchronous face, whose thread shares the interpreter with the caller."""
    ttft: list[float] = []
    itl: list[float] = []
    with Client(stub.base_url) as client:
        client.chat(_request("no-usage", "warm"))
        for turn in range(rounds):
            name = f"{case}-sync-{turn}"
            errors = errors_of(client.chat(_request(case, name)).raise_for_error(), stub.log(name))
            ttft += errors.ttft
            itl += errors.itl
    return Errors(ttft, itl)


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
    sys.exit(worst >= 2)


def _request(case: str, name: str) -> ChatRequest:
    return ChatRequest(model=case, messages=({"role": "user", "content": "hi"},), extra={"request_id": name})


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
