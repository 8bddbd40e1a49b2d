"""From the calls of one load to the numbers that a trial keeps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from experiments.framework.trials import CallRecord, Measure
from experiments.latency.definitions import Throughput, in_window, last_token_ns, times_of, whole_run
from experiments.latency.floors import ModelFigures, Work, decode_work, prefill_work
from experiments.latency.load import Loaded, Sent
from experiments.latency.steady import Settling, settle
from experiments.latency.workload import Shape
from serving.client import Exchange

PERCENTILES = (50, 95)


def measures_of(loaded: Loaded, shape: Shape, figures: ModelFigures | None) -> dict[str, Measure]:
    """Every number of a load: times in seconds, None where unknown.

    What `settle` cuts off at the beginning is in no time; rates count the time in which the load was full. It judges
    the first calls of conversations and cuts off whole ones: a later turn, whose beginning is cached, is quick by
    itself, and a first one that is slower no sign of a warm-up.
    """
    firsts = [call for call in loaded.calls if call.turn == 0]
    latencies = [call.exchange.latency_s for call in firsts]
    known = [latency for latency in latencies if latency is not None]
    # An answer without a token has no latency, and a series with holes has no place to cut.
    settling = settle(known) if len(known) == len(latencies) else Settling(0, None)
    left_out = {call.conversation for call in firsts[: settling.dropped]}
    kept = [call for call in loaded.calls if call.conversation not in left_out]
    times = [times_of(call.exchange) for call in kept]
    begin = max(loaded.full_from_ns, kept[0].exchange.timings.sent_ns)
    # Calls that were cut off still ran when the first kept one was sent: what they brought then counts as well.
    every = [call.exchange for call in loaded.calls]
    return {
        "requests": len(kept),
        "settling_requests": len(loaded.calls) - len(kept),
        "steady": settling.reached,
        **_summary("ttft", [one.ttft_s for one in times]),
        **_summary("itl", [gap for one in times for gap in one.itl_s]),
        **_summary("tpot", [one.tpot_s for one in times]),
        **_summary("latency", [one.latency_s for one in times]),
        **_rates("full", in_window(every, begin, loaded.full_to_ns)),
        **_rates("run", whole_run(every)),
        "joules": loaded.joules,
        "joules_per_output_token": _a_token(loaded.joules, every),
        "late_max_s": max(call.late_s for call in kept),
        **_work(kept, shape, figures),
    }


def call_records(loaded: Loaded, block_size: int | None) -> tuple[CallRecord, ...]:
    """The calls as every study keeps them, with the reuse that their construction predicts.

    `block_size` None: lengths or blocks are unknown, and nothing is predicted.
    """
    return tuple(_record(call, block_size) for call in loaded.calls)


def step_batches(exchanges: Sequence[Exchange]) -> list[float]:
    """For every gap between two arrivals: how many calls were between their first and last token throughout it.

    Counted at steps, not over time, so that slow steps do not weigh more.
    """
    ended = [exchange for exchange in exchanges if last_token_ns(exchange) is not None]
    starts = np.sort([e.timings.sent_ns + (e.timings.first_token_ns or 0) for e in ended])
    ends = np.sort([last_token_ns(exchange) or 0 for exchange in ended])
    batches: list[float] = []
    for exchange in ended:
        stamps = [exchange.timings.sent_ns + arrival.at_ns for arrival in exchange.timings.arrivals]
        for one, other in pairwise(stamps):
            middle = (one + other) / 2
            begun = int(np.searchsorted(starts, middle, side="right"))
            batches.append(float(begun - int(np.searchsorted(ends, middle, side="left"))))
    return batches


def _work(kept: Sequence[Sent], shape: Shape, figures: ModelFigures | None) -> dict[str, Measure]:
    if figures is None:
        return {}
    exchanges = [call.exchange for call in kept]
    counts = [usage for exchange in exchanges if (usage := exchange.usage) is not None]
    known = [
        (usage.prompt_tokens, usage.cached_tokens)
        for usage in counts
        if usage.prompt_tokens is not None and usage.cached_tokens is not None
    ]
    found: dict[str, Measure] = {}
    if known and len(known) == len(exchanges):
        each = [prefill_work(figures, uncached=prompt - cached, cached=cached) for prompt, cached in known]
        found |= _mean_work("prefill", each)
    batches = step_batches(exchanges)
    if batches and known:
        batch = float(np.mean(batches))
        context = float(np.mean([prompt for prompt, _ in known]))
        # Others' contexts grow while they answer; the prompts alone are the least that is read.
        step = decode_work(figures, batch=batch, context=context, shared=min(shape.shared_tokens, context))
        found |= {"batch": batch, **_mean_work("decode", [step])}
    return found


def _mean_work(name: str, works: Sequence[Work]) -> dict[str, Measure]:
    return {
        f"{name}_flop": float(np.mean([work.flop for work in works])),
        f"{name}_bytes": float(np.mean([work.bytes for work in works])),
    }


def _a_token(joules: float | None, exchanges: Sequence[Exchange]) -> float | None:
    tokens = sum(exchange.output_tokens or 0 for exchange in exchanges)
    return None if joules is None or not tokens else joules / tokens


def _summary(name: str, values: Sequence[float | None]) -> dict[str, Measure]:
    known = [value for value in values if value is not None]
    if not known:
        return {f"{name}_mean_s": None, **{f"{name}_p{p}_s": None for p in PERCENTILES}}
    return {
        f"{name}_mean_s": float(np.mean(known)),
        **{f"{name}_p{p}_s": float(np.percentile(known, p)) for p in PERCENTILES},
    }


def _rates(name: str, rate: Throughput | None) -> dict[str, Measure]:
    return {
        f"{name}_seconds": None if rate is None else rate.seconds,
        f"{name}_requests_per_s": None if rate is None else rate.requests_per_s,
        f"{name}_output_tokens_per_s": None if rate is None else rate.output_tokens_per_s,
    }


def _record(call: Sent, block_size: int | None) -> CallRecord:
    exchange, usage = call.exchange, call.exchange.usage
    prompt = None if usage is None else usage.prompt_tokens
    return CallRecord(
        prompt_tokens=prompt,
        cached_tokens=None if usage is None else usage.cached_tokens,
        predicted_tokens=None
        if prompt is None or block_size is None
        else _predicted(call, prompt, block_size),
        output_tokens=exchange.output_tokens,
        ttft_s=exchange.ttft_s,
        latency_s=exchange.latency_s,
    )


def _predicted(call: Sent, prompt: int, block_size: int) -> int:
    """Whole blocks of what was computed; never the last token of a prompt, nor that of an answer, which is not run."""
    computed = call.reusable_tokens - (1 if call.turn else 0)
    return min(computed, prompt - 1) // block_size * block_size
