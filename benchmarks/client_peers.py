"""One load by one client, in a process of its own: ours, vLLM's bench, or guidellm.

    echo '{"base_url": …}' | python -m benchmarks.client_peers ours

Reads a `Job` as one line of JSON from standard input and writes what the client itself reports as JSON to standard
output, times in seconds. Every load is run short, short again, and long. The first brings the imports; the
difference of the other two is what a request costs in processor time, without the start of a load (worker
processes, the tokenizer). What it is at stands on lines of standard error that begin with `PHASE`. Only the chosen
client is imported, so that guidellm's runs in an environment that has nothing of the lab.

**The same requests.** Ours and vLLM's bench send the same texts in the same order and the same fields: vLLM's reads
them from a file (`custom_image`, the one of its data sets that takes conversations as they are and needs neither
pandas nor a tokenizer; here without an image), and all fields of our body that its own lacks go into its
`--extra-body`. Two things stay its own: a text is written as a list of one part, which a server joins to the same
prompt, and `max_tokens` is called `max_completion_tokens`. guidellm draws its own texts; it only meets the stub.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import statistics
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from experiments.latency.workload import Asking, Conversation, Shape

PHASE: Final = "@phase "
"""Begins a line of standard error that says what is being done."""
WITH_PARENT: Final = "--with-parent"
"""The process ends, and all that it started, when its standard input does: when its parent is gone."""


@dataclass(frozen=True)
class Job:
    """`requests` calls of the stub's script `case`, `streams` at once."""

    base_url: str
    case: str
    streams: int
    requests: int
    output_tokens: int
    tokenizer: str
    prompt_tokens: int = 8
    """Ours and vLLM's send as many words, which most vocabularies have as one token each."""
    seed: int = 0
    """Of the texts."""
    salt: str = "job"
    """Begins the cache salt of each of the loads: with another one the same texts meet none of their blocks."""


@dataclass(frozen=True)
class Call:
    """What a client says of one request; `start` orders the requests of one client and nothing else."""

    start: float
    ttft_s: float | None
    itl_s: list[float]
    tpot_s: float | None
    latency_s: float | None


@dataclass(frozen=True)
class Reported:
    """What a client says of one load."""

    calls: list[Call]
    output_tokens_per_s: float
    requests_per_s: float
    full_output_tokens_per_s: float | None = None
    """While the load was full, without ramp and drain; only ours tells it."""
    prompt_tokens: int | None = None
    """Of all requests, as the server counted them."""
    output_tokens: int | None = None


def known_median(values: Sequence[float | None]) -> float | None:
    """The median of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def asked(job: Job) -> tuple[Shape, Asking, tuple[Conversation, ...]]:
    """What ours and vLLM's bench both send."""
    from experiments.latency.workload import WORDS, Asking, Shape, conversations
    from serving.client import Surface

    shape = Shape(prompt_tokens=max(2, job.prompt_tokens), output_tokens=job.output_tokens)
    asking = Asking(job.case, Surface.CHAT, job.output_tokens, job.salt, is_vllm=True)
    return shape, asking, conversations(shape, job.requests, len(WORDS), [job.seed])


def ours(job: Job) -> Reported:
    """`ctxlab bench`'s own generator."""
    from experiments.latency.definitions import in_window, times_of, whole_run
    from experiments.latency.load import closed_loop
    from serving.client import AsyncClient

    shape, asking, todo = asked(job)

    async def load() -> Reported:
        async with AsyncClient(job.base_url) as client:
            loaded = await closed_loop(client, asking, shape, todo, job.streams)
        exchanges = [call.exchange.raise_for_error() for call in loaded.calls]
        rate = whole_run(exchanges)
        full = in_window(exchanges, loaded.full_from_ns, loaded.full_to_ns)
        assert rate is not None and full is not None
        calls = []
        for exchange in exchanges:
            seen = times_of(exchange)
            start = exchange.timings.sent_ns / 1e9
            calls.append(Call(start, seen.ttft_s, list(seen.itl_s), seen.tpot_s, seen.latency_s))
        usages = [exchange.usage for exchange in exchanges if exchange.usage is not None]
        return Reported(
            calls,
            rate.output_tokens_per_s,
            rate.requests_per_s,
            full.output_tokens_per_s,
            prompt_tokens=sum(usage.prompt_tokens or 0 for usage in usages),
            output_tokens=sum(usage.completion_tokens or 0 for usage in usages),
        )

    return asyncio.run(load())


def as_vllm_reads_it(job: Job) -> tuple[list[dict[str, object]], dict[str, object]]:
    """The lines of vLLM's data set, and the fields of our bodies that its own lack.

    Its messages, model and stream options stand where ours do; the number of tokens is overwritten, for without a
    tokenizer its data set asks for one.
    """
    from experiments.latency.workload import History, next_request

    _, asking, todo = asked(job)
    bodies = [next_request(asking, History(), one.pieces[0])[0].body() for one in todo]
    lines: list[dict[str, object]] = []
    for body in bodies:
        messages = body["messages"]
        assert isinstance(messages, list) and isinstance(messages[0], dict)
        lines.append({"content": [{"type": "text", "text": messages[0]["content"]}]})
    own = ("model", "messages", "stream", "stream_options", "max_tokens")
    extra: dict[str, object] = {name: value for name, value in bodies[0].items() if name not in own}
    return lines, {**extra, "max_completion_tokens": job.output_tokens}


def vllm_bench(job: Job) -> Reported:
    """`main` of vLLM's bench, as its command line would call it."""
    from vllm.benchmarks.serve import add_cli_args, main
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    lines, extra = as_vllm_reads_it(job)
    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    switches = ("disable-shuffle", "no-oversample", "skip-tokenizer-init", "disable-tqdm", "save-detailed")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "requests.jsonl"
        data.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        words = {
            "backend": "openai-chat",
            "endpoint": "/v1/chat/completions",
            "base-url": job.base_url,
            "model": job.case,
            "dataset-name": "custom_image",
            "dataset-path": str(data),
            "custom-output-len": job.output_tokens,
            "num-prompts": job.requests,
            "max-concurrency": job.streams,
            "ready-check-timeout-sec": 0,
            "extra-body": json.dumps(extra),
        }
        flags = [f"--{name}={value}" for name, value in words.items()]
        found = main(parser.parse_args([*flags, *(f"--{name}" for name in switches)]))
    failed = [error for error in found["errors"] if error]
    if failed:
        raise RuntimeError(f"{len(failed)} of {job.requests} requests failed; the first: {failed[0]}")
    calls = []
    for start, ttft, gaps, latency, tokens in zip(
        *(found[name] for name in ("start_times", "ttfts", "itls", "latencies", "output_lens")), strict=True
    ):
        tpot = (latency - ttft) / (tokens - 1) if tokens > 1 else None
        calls.append(Call(start, ttft, list(gaps), tpot, latency))
    return Reported(
        calls,
        found["output_throughput"],
        found["request_throughput"],
        prompt_tokens=found["total_input_tokens"],
        output_tokens=found["total_output_tokens"],
    )


def guidellm(job: Job) -> Reported:
    """guidellm's own workflow with synthetic prompts."""
    from guidellm.benchmark.entrypoints import benchmark_generative_text
    from guidellm.schemas.benchmark import BenchmarkScenario

    data = {"kind": "synthetic_text", "prompt_tokens": job.prompt_tokens, "output_tokens": job.output_tokens}
    args = BenchmarkScenario.create(
        spec={
            "backend": {
                "kind": "openai_http",
                "target": job.base_url,
                "model": job.case,
                "request_format": "/v1/chat/completions",
                "validate_backend": False,
            },
            "profile": {"kind": "concurrent", "streams": [job.streams]},
            "constraints": [{"kind": "max_requests", "count": job.requests}],
            "tokenizer": {"kind": "huggingface_auto", "model": job.tokenizer},
            "data": [data],
            "outputs": [],
        },
        metadata={"labels": {}},
        scenario=None,
    )
    report, _ = asyncio.run(benchmark_generative_text(args=args, progress=False, console=None))
    done = report.benchmarks[0]
    calls = [
        Call(
            one.info.timings.request_start,
            _seconds(one.time_to_first_token_ms),
            [] if one.inter_token_latency_ms is None else [one.inter_token_latency_ms / 1e3],
            _seconds(one.time_per_output_token_ms),
            one.request_latency,
        )
        for one in done.requests.successful
    ]
    metrics = done.metrics
    return Reported(
        calls, metrics.output_tokens_per_second.successful.mean, metrics.requests_per_second.successful.mean
    )


CLIENTS: dict[str, Callable[[Job], Reported]] = {"ours": ours, "vllm": vllm_bench, "guidellm": guidellm}


def main() -> None:
    """Run the job's short and long load, and print the long one's report with the stub's own logs of it."""
    client = sys.argv[1]
    run = CLIENTS[client]
    job = Job(**json.loads(sys.stdin.readline()))
    if WITH_PARENT in sys.argv:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    short = replace(job, requests=job.streams, seed=job.seed + 1, salt=f"{job.salt}-short")
    with contextlib.redirect_stdout(sys.stderr):  # the clients print their own tables
        _say(f"importing {client} and warming up")
        _spent_by(run, replace(short, seed=job.seed + 2, salt=f"{job.salt}-warm"))
        _say(f"sending {short.requests} requests")
        spent = [_spent_by(run, short)[0]]
        _drain_logs(job.base_url)
        _say(f"sending {job.requests} requests, measured")
        used, reported = _spent_by(run, job)
        spent.append(used)
    if len(reported.calls) != job.requests:
        sys.exit(f"Expected {job.requests} requests that succeeded, got {len(reported.calls)}.")
    more = job.requests - short.requests
    print(
        json.dumps(
            {
                "reported": asdict(reported),
                "logs": _drain_logs(job.base_url),
                "cpu_s_per_1000": 1000 * (spent[1] - spent[0]) / more if more > 0 else None,
            }
        )
    )


def _say(phase: str) -> None:
    print(f"{PHASE}{phase}", file=sys.stderr, flush=True)


def _end_with_parent() -> None:
    """Wait for the end of standard input, whose other end the parent holds, and end the whole group."""
    while os.read(0, 1024):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _spent_by(run: Callable[[Job], Reported], job: Job) -> tuple[float, Reported]:
    """Processor seconds of this process and of its children that have ended, and the report."""
    before = _processor_s()
    reported = run(job)
    return _processor_s() - before, reported


def _processor_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _drain_logs(base_url: str) -> object:
    """What the stub saw since the last look; None at a server that is no stub."""
    try:
        with urllib.request.urlopen(f"{base_url}/_logs") as reply:  # noqa: S310
            return json.load(reply)
    except urllib.error.HTTPError:
        return None


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3


if __name__ == "__main__":
    main()
