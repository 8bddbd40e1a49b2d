"""One load by one client, in a process of its own: ours, vLLM's bench, or guidellm.

    echo '{"base_url": …}' | python -m benchmarks.client_peers ours

Reads a `Job` as JSON from standard input and writes what the client itself reports as JSON to standard output,
times in seconds. Every load is run short, short again, and long. The first brings the imports; the difference of
the other two is what a request costs in processor time, without the start of a load (worker processes, the
tokenizer). Only the chosen client is imported, so that guidellm's runs in an environment that has nothing of the
lab.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Job:
    """`requests` calls of the stub's script `case`, `streams` at once."""

    base_url: str
    case: str
    streams: int
    requests: int
    output_tokens: int
    tokenizer: str
    extra: dict[str, object] = field(default_factory=dict)
    """Further fields of vLLM's and our request bodies."""
    prompt_tokens: int = 8
    """Ours sends as many words, which most vocabularies have as one token each."""
    seed: int = 0
    """Of the prompts: another one meets none of the last load's blocks in a server's cache."""


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


def ours(job: Job) -> Reported:
    """`ctxlab bench`'s own generator."""
    from experiments.latency.definitions import in_window, times_of, whole_run
    from experiments.latency.load import closed_loop
    from experiments.latency.workload import WORDS, Asking, Shape, conversations
    from serving.client import AsyncClient, Surface

    shape = Shape(prompt_tokens=max(2, job.prompt_tokens), output_tokens=job.output_tokens)
    asking = Asking(job.case, Surface.CHAT, job.output_tokens, None, is_vllm=True)

    async def load() -> Reported:
        async with AsyncClient(job.base_url) as client:
            todo = conversations(shape, job.requests, len(WORDS), [job.seed])
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
        return Reported(calls, rate.output_tokens_per_s, rate.requests_per_s, full.output_tokens_per_s)

    return asyncio.run(load())


def vllm_bench(job: Job) -> Reported:
    """`main` of vLLM's bench, as its command line would call it."""
    from vllm.benchmarks.serve import add_cli_args, main
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    words = {
        "backend": "openai-chat",
        "endpoint": "/v1/chat/completions",
        "base-url": job.base_url,
        "model": job.case,
        "tokenizer": job.tokenizer,
        "dataset-name": "random",
        "random-input-len": job.prompt_tokens,
        "random-output-len": job.output_tokens,
        "seed": job.seed,
        "num-prompts": job.requests,
        "max-concurrency": job.streams,
        "ready-check-timeout-sec": 0,
        "extra-body": json.dumps(job.extra),
    }
    flags = [f"--{name}={value}" for name, value in words.items()]
    found = main(parser.parse_args([*flags, "--disable-tqdm", "--save-detailed"]))
    calls = []
    for start, ttft, gaps, latency, tokens in zip(
        *(found[name] for name in ("start_times", "ttfts", "itls", "latencies", "output_lens")), strict=True
    ):
        tpot = (latency - ttft) / (tokens - 1) if tokens > 1 else None
        calls.append(Call(start, ttft, list(gaps), tpot, latency))
    return Reported(calls, found["output_throughput"], found["request_throughput"])


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


def told_by(client: str, job: Mapping[str, object], python: str = sys.executable) -> dict[str, Any]:
    """What `client` says of a job, from a process of its own that `python` runs; its failure ends this program."""
    done = subprocess.run(
        [python, "-m", "benchmarks.client_peers", client],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        check=False,
    )
    if done.returncode:
        sys.exit(f"{client} failed:\n{done.stderr[-2000:]}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def main() -> None:
    """Run the job's short and long load, and print the long one's report with the stub's own logs of it."""
    run = CLIENTS[sys.argv[1]]
    job = Job(**json.load(sys.stdin))
    short = replace(job, requests=job.streams, seed=job.seed + 1)
    with contextlib.redirect_stdout(sys.stderr):  # the clients print their own tables
        _spent_by(run, replace(short, seed=job.seed + 2))
        spent = [_spent_by(run, short)[0]]
        _drain_logs(job.base_url)
        used, reported = _spent_by(run, job)
        spent.append(used)
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
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the tokenizer is a folder here
    main()
