"""How far three clients' numbers are from what a server really sent: ours, vLLM's bench and guidellm.

    make bench-clients        # builds guidellm's own environment first
    python -m benchmarks.client_comparison --guidellm .venv-clients/bin/python --out runs/client-comparison

A stub server in a process of its own plays streams whose every event is known (`tests/support/scripts.py`, `TIMED`:
the role chunk first, reasoning first, several tokens a chunk, a slow start) and stamps each write. A client's numbers
are held against those stamps twice:

- **own**: under the client's own definition (`experiments/latency/definitions.py`): does it measure what it says?
- **tokens**: under the definition that only tokens count, the same for all: is it what a user waits for?

TTFT, ITL and TPOT errors are in milliseconds, reported − sent, one a request (ITL: the request's median gap, so
that two chunks that a busy machine delivers at once do not count twice). Bias is their mean with a 95 % bootstrap
interval over requests, spread the range from their 2.5th to their 97.5th percentile. The throughput error is in
percent of what the stub sent in the time that the client's own definition covers, one a side; its bias and spread are
over all sides of a client. The trips of the request and of
the token are in every error, the same for all clients. Clients take turns case by case.

With `--out` every finished side is kept at once, in `sides.jsonl`; the same command goes on from there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter

from benchmarks.client_kept import kept_in
from benchmarks.client_peers import Call, known_median
from benchmarks.client_process import TIMEOUT_S, Clock, Watch, told_by
from experiments.cli.signals import ending_politely
from experiments.framework.statistics import Interval, bootstrap
from experiments.latency import definitions
from experiments.latency.definitions import CallTimes, Chunk, ChunkKind
from serving.errors import LabError
from serving.models import ensure
from tests.support.scripts import TIMED
from tests.support.stub import Stub, running_stub

Reader = Callable[[Sequence[Chunk]], CallTimes]
CLIENTS: dict[str, Reader] = {
    "ours": definitions.ours,
    "vllm": definitions.vllm_bench,
    "guidellm": definitions.guidellm,
}
STREAMS = (1, 4, 16, 64)
MEASURES = ("ttft", "itl", "tpot")
TELLING_MS = 1.0
"""Where another client's definition gives a number that is further than this from ours of the same stream, ours has to
be strictly closer to the tokens."""

SIDES = "sides.jsonl"


class Log(BaseModel):
    """What the stub did with one request; stamps are `perf_counter_ns`."""

    received_ns: int
    sends: list[tuple[int, bool]]
    """When, and whether it ended a chunk with a token."""


class Spread(BaseModel):
    """Many errors of one kind: their mean with its interval, and where 95 % of them lie."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bias: Interval
    low: float
    high: float
    n: int

    def words(self) -> str:
        """`bias [its interval] (low … high)`."""
        return f"{self.bias.words('+.2f')} ({self.low:+.2f} … {self.high:+.2f})"


class Error(Spread):
    """One client's errors in one measure of one case, in milliseconds."""

    client: str
    case: str
    streams: int
    measure: str
    judged: str
    """`own` or `tokens`."""


class Side(BaseModel):
    """One client's load, done."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    client: str
    case: str
    streams: int
    requests: int
    errors: tuple[Error, ...]
    throughput_error_percent: float
    cpu_s_per_1000_requests: float | None


@dataclass(frozen=True)
class Load:
    """What one client is to do: one line of the plan."""

    client: str
    case: str
    streams: int
    requests: int


def judge(client: str, case: str, streams: int, calls: Sequence[Call], logs: Sequence[Log]) -> list[Error]:
    """Pair a client's calls with the stub's logs in order of their beginning, and take the errors."""
    truths = [chunks_of(case, log) for log in sorted(logs, key=lambda log: log.received_ns)]
    pairs = list(zip(sorted(calls, key=lambda call: call.start), truths, strict=True))
    found = []
    for judged, reader in (("own", CLIENTS[client]), ("tokens", definitions.ours)):
        errors: dict[str, list[float]] = {measure: [] for measure in MEASURES}
        for call, chunks in pairs:
            for measure, value in differences(call, reader(chunks)).items():
                errors[measure].append(1e3 * value)
        for measure, values in errors.items():
            if values:
                error = Error(
                    client=client,
                    case=case,
                    streams=streams,
                    measure=measure,
                    judged=judged,
                    **vars(spread_of(values)),
                )
                found.append(error)
    return found


def spread_of(values: Sequence[float]) -> Spread:
    """What many errors have in common."""
    bias = bootstrap(
        np.array(values)[:, None], lambda means: means[:, 0], np.random.default_rng(0), resamples=2000
    )
    low, high = (float(end) for end in np.percentile(values, (2.5, 97.5)))
    return Spread(bias=bias, low=low, high=high, n=len(values))


def chunks_of(case: str, log: Log) -> list[Chunk]:
    """What the stub sent, at the time it did; its log has one send a beat."""
    pairs = zip(TIMED[case], log.sends, strict=True)
    return [Chunk((at - log.received_ns) / 1e9, ChunkKind(beat.kind), beat.tokens) for beat, (at, _) in pairs]


def differences(call: Call | CallTimes, truth: CallTimes) -> dict[str, float]:
    """Reported − sent in seconds, of what both know."""
    reported, sent = _measured(call), _measured(truth)
    return {
        name: here - there
        for name, there in sent.items()
        if there is not None and (here := reported[name]) is not None
    }


def throughput_error(client: str, case: str, rate: float, logs: Sequence[Log]) -> float:
    """Percent by which the reported output tokens a second differ from what was sent.

    From the first request to the last token for ours, to the end of the last stream for the others.
    """
    begin = min(log.received_ns for log in logs)
    ends = [[at for at, token in log.sends if token or client != "ours"][-1] for log in logs]
    tokens = len(logs) * sum(beat.tokens for beat in TIMED[case])
    return 100 * (rate / (tokens / ((max(ends) - begin) / 1e9)) - 1)


def plan(
    clients: Sequence[str], cases: Sequence[str], streams: Sequence[int], rounds: int
) -> tuple[Load, ...]:
    """Every client in every case at every number of streams, taking turns."""

    def requests(at_once: int) -> int:
        return max(at_once * max(2, rounds // (3 if at_once > 16 else 1)), 4 * rounds)

    return tuple(
        Load(client, case, at_once, requests(at_once))
        for case, at_once, client in product(cases, streams, clients)
    )


def run_side(load: Load, python: str, stub: Stub, tokenizer: str, watch: Watch, timeout_s: float) -> Side:
    """One client's load in its own process."""
    job: dict[str, JsonValue] = {
        "base_url": stub.base_url,
        "case": load.case,
        "streams": load.streams,
        "requests": load.requests,
        "output_tokens": sum(beat.tokens for beat in TIMED[load.case]),
        "tokenizer": tokenizer,
    }
    told = told_by(load.client, job, python, watch=watch, timeout_s=timeout_s)
    reported, logs = told.reported, TypeAdapter(list[Log]).validate_python(told.logs)
    return Side(
        **vars(load),
        errors=tuple(judge(load.client, load.case, load.streams, reported.calls, logs)),
        throughput_error_percent=throughput_error(load.client, load.case, reported.output_tokens_per_s, logs),
        cpu_s_per_1000_requests=told.cpu_s_per_1000,
    )


def throughputs(sides: Sequence[Side]) -> dict[str, Spread]:
    """Client → its throughput errors in percent, over all its sides."""
    clients = dict.fromkeys(side.client for side in sides)
    return {
        client: spread_of([side.throughput_error_percent for side in sides if side.client == client])
        for client in clients
    }


def reads_otherwise(client: str, case: str, measure: str) -> bool:
    """Whether a client's definition and ours give numbers of this stream that are more than `TELLING_MS` apart."""
    sent = [Chunk(beat.at_ms / 1e3, ChunkKind(beat.kind), beat.tokens) for beat in TIMED[case]]
    apart = differences(CLIENTS[client](sent), definitions.ours(sent))
    return 1e3 * abs(apart.get(measure, 0.0)) > TELLING_MS


def verdicts(sides: Sequence[Side]) -> list[str]:
    """Where ours is worse than the best other beyond the intervals, or not strictly closer where it has to be."""
    errors = [error for side in sides for error in side.errors]
    wrong = []
    for mine in (error for error in errors if error.client == "ours"):
        key = (mine.case, mine.streams, mine.measure, mine.judged)
        what = " ".join(map(str, key))
        others: dict[str, Spread] = {
            error.client: error
            for error in errors
            if error.client != "ours" and (error.case, error.streams, error.measure, error.judged) == key
        }
        wrong += _worse(what, mine, others, "ms")
        wrong += [
            f"{what}: ours is not strictly closer to the tokens than {client}"
            for client, other in others.items()
            if mine.judged == "tokens"
            and reads_otherwise(client, mine.case, mine.measure)
            and not _most(mine.bias) < _least(other.bias)
        ]
    rates = throughputs(sides)
    return wrong + _worse("throughput", rates.pop("ours"), rates, "%")


def _worse(what: str, mine: Spread, others: Mapping[str, Spread], unit: str) -> list[str]:
    """A sentence where ours is worse than the best other beyond the intervals."""
    if not others:
        return []
    client, best = min(others.items(), key=lambda pair: abs(pair[1].bias.estimate))
    if _least(mine.bias) <= _most(best.bias):
        return []
    return [f"{what}: ours {mine.bias.words()}, {client} {best.bias.words()} {unit}"]


def main() -> None:
    """Print one line a case, number of streams and client, then the verdict; write the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--guidellm", metavar="PYTHON", help="guidellm's environment; without it, two clients"
    )
    parser.add_argument("--rounds", type=int, default=6, help="calls a stream (64 streams: a third)")
    parser.add_argument("--streams", type=int, nargs="*", default=STREAMS)
    parser.add_argument("--cases", nargs="*", choices=tuple(TIMED), default=tuple(TIMED))
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds that one side may take")
    parser.add_argument("--out", type=Path, help="keep finished sides here, and write comparison.json")
    options = parser.parse_args()
    pythons = {"ours": sys.executable, "vllm": sys.executable}
    if options.guidellm:
        pythons["guidellm"] = options.guidellm
    todo = plan(tuple(pythons), options.cases, options.streams, options.rounds)
    try:
        with ending_politely():
            sides = compare(todo, pythons, options.out, options.timeout)
    except LabError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        kept = f"; what was finished is in {options.out}, and the same command goes on" if options.out else ""
        sys.exit(f"Stopped{kept}.")
    wrong, rates = verdicts(sides), throughputs(sides)
    for client, rate in rates.items():
        print(f"throughput of {client} over {rate.n} sides, %: {rate.words()}")
    if options.out:
        report = {
            "verdicts": wrong,
            "throughput_error_percent": {
                client: rate.model_dump(mode="json") for client, rate in rates.items()
            },
            "sides": [side.model_dump(mode="json") for side in sides],
        }
        (options.out / "comparison.json").write_text(json.dumps(report, indent=1) + "\n")
    print(
        "\n".join(wrong)
        or "ours is nowhere worse than the best other, and closer to the tokens where it has to be"
    )
    sys.exit(1 if wrong else 0)


def compare(
    todo: Sequence[Load], pythons: Mapping[str, str], folder: Path | None, timeout_s: float
) -> list[Side]:
    """Every side of the plan, in its order; those that `folder` has already are not run again."""
    tokenizer = str(ensure("qwen3-nano-shape").path)
    print(f"{'case':24} {'streams':>7} {'client':9} {'judged':7} bias [95 %] (spread), ms: TTFT | ITL | TPOT")
    file = None if folder is None else folder / SIDES
    with kept_in(file, {}) as kept, running_stub() as stub, Clock() as clock:
        sides = [Side.model_validate(line) for line in kept.lines]
        done = {Load(side.client, side.case, side.streams, side.requests): side for side in sides}
        for number, load in enumerate(todo, start=1):
            if load not in done:
                what = f"{number} of {len(todo)}: {load.client}, {load.case}, {load.streams} streams"
                watch = clock.watch(what)
                done[load] = run_side(load, pythons[load.client], stub, tokenizer, watch, timeout_s)
                kept.add(done[load].model_dump(mode="json"))
            clock.stop()
            _show(done[load])
    return [done[load] for load in todo]


def _show(side: Side) -> None:
    cpu = "unknown" if side.cpu_s_per_1000_requests is None else f"{side.cpu_s_per_1000_requests:.1f}"
    for judged in ("own", "tokens"):
        shown = [
            error.words()
            for measure in MEASURES
            for error in side.errors
            if (error.measure, error.judged) == (measure, judged)
        ]
        print(f"{side.case:24} {side.streams:7} {side.client:9} {judged:7} {' | '.join(shown)}", flush=True)
    print(
        f"{'':42} throughput {side.throughput_error_percent:+.2f} %, {cpu} CPU s per 1,000 requests",
        flush=True,
    )


def _measured(times: Call | CallTimes) -> dict[str, float | None]:
    return {"ttft": times.ttft_s, "itl": known_median(times.itl_s), "tpot": times.tpot_s}


def _least(bias: Interval) -> float:
    low, high = _ends(bias)
    return 0.0 if low <= 0 <= high else min(abs(low), abs(high))


def _most(bias: Interval) -> float:
    return max(abs(end) for end in _ends(bias))


def _ends(bias: Interval) -> tuple[float, float]:
    if bias.low is None or bias.high is None:
        return bias.estimate, bias.estimate
    return bias.low, bias.high


if __name__ == "__main__":
    main()
