"""What every number of a streamed call means here, and what other clients mean by the same word.

A stream is a list of `Chunk`s. Three readers give the same four numbers of it:

- **TTFT**, time to first token: from the first byte of the request handed to the socket to the first chunk that
  carries a token of any kind (reasoning, text, tool call). The empty role chunk is no token. vLLM's bench takes
  the first chunk with a `choices` entry, which is the role chunk where a server sends one at once, and starts its
  clock before the connection is made. guidellm takes the first chunk whose delta has content or a tool call, and
  starts as ours does, when the request's head is written: connecting is not in it.
- **ITL**, inter-token latency: the gaps between chunks that carry tokens; k tokens in one chunk are one gap, for
  nobody saw them apart. vLLM's bench takes gaps between all chunks with `choices`: role and finish chunks add gaps
  that no token ended. guidellm has one number a request: what is TPOT here.
- **TPOT**, time per output token: (latency − TTFT) / (output tokens − 1), with the server's count. vLLM's bench
  has the same formula over its own TTFT and its own last chunk. guidellm divides the time from sending, prefill
  included, to the last token by all output tokens.
- **Latency** (end to end): from sending to the last token; not to `[DONE]`, the usage chunk or the connection's
  end. vLLM's bench ends at its last chunk with `choices`, guidellm at the end of the body.

**Throughput** is requests or output tokens over seconds, and the seconds are the question: `whole_run` goes from
the first send to the last token, ramp and drain included, as vLLM's bench does, and guidellm to the end of its last
body; `in_window` counts what arrived while the load was full. Source of theirs: vllm/benchmarks/serve.py and
lib/endpoint_request_func.py (0.32), guidellm/backends/openai/http.py and schemas/base/request_stats.py (0.8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from serving.client import Exchange

NS = 1e-9


class ChunkKind(StrEnum):
    """What a chunk of a stream shows."""

    ROLE = "role"
    """The empty delta that names the assistant."""
    REASONING = "reasoning"
    TEXT = "text"
    FINISH = "finish"
    """The finish reason; it may carry the invisible end token."""
    USAGE = "usage"
    """Counts, with empty `choices`."""


@dataclass(frozen=True)
class Chunk:
    """One event of a stream: when it was complete, what it shows, how many tokens it carries."""

    at_s: float
    """Seconds after sending."""
    kind: ChunkKind
    tokens: int


@dataclass(frozen=True)
class CallTimes:
    """The four numbers of one call in seconds; None where the stream has none."""

    ttft_s: float | None
    itl_s: tuple[float, ...]
    tpot_s: float | None
    latency_s: float | None


@dataclass(frozen=True)
class Throughput:
    """What came in `seconds`."""

    seconds: float
    requests_per_s: float
    output_tokens_per_s: float


def ours(chunks: Sequence[Chunk]) -> CallTimes:
    """The lab's reading; equal to the properties of the `Exchange` that the client records of this stream."""
    seen = [chunk.at_s for chunk in chunks if chunk.tokens]
    return _times(seen, sum(chunk.tokens for chunk in chunks))


def vllm_bench(chunks: Sequence[Chunk]) -> CallTimes:
    """As `vllm bench serve` reads it: every chunk with `choices` is a token."""
    seen = [chunk.at_s for chunk in chunks if chunk.kind is not ChunkKind.USAGE]
    return _times(seen, sum(chunk.tokens for chunk in chunks))


def guidellm(chunks: Sequence[Chunk]) -> CallTimes:
    """As guidellm reads it: chunks whose delta shows something, one mean gap a request, TPOT with the prefill in it."""
    shown = (ChunkKind.REASONING, ChunkKind.TEXT)
    seen = [chunk.at_s for chunk in chunks if chunk.kind in shown]
    tokens = sum(chunk.tokens for chunk in chunks)
    if not seen:
        return CallTimes(None, (), None, None)
    gap = () if tokens < 2 else ((seen[-1] - seen[0]) / (tokens - 1),)
    return CallTimes(seen[0], gap, seen[-1] / tokens if tokens else None, chunks[-1].at_s)


def times_of(exchange: Exchange) -> CallTimes:
    """The four numbers of a recorded call."""
    return CallTimes(exchange.ttft_s, exchange.itl_s, exchange.tpot_s, exchange.latency_s)


def whole_run(exchanges: Sequence[Exchange]) -> Throughput | None:
    """From the first send to the last token of all calls; None where no token came."""
    ends = [end for exchange in exchanges if (end := last_token_ns(exchange)) is not None]
    if not ends:
        return None
    begin = min(exchange.timings.sent_ns for exchange in exchanges)
    return _over(len(ends), sum(exchange.output_tokens or 0 for exchange in exchanges), max(ends) - begin)


def in_window(exchanges: Sequence[Exchange], begin_ns: int, end_ns: int) -> Throughput | None:
    """Tokens that arrived in [begin, end), and calls by the share of their tokens among them; None if it is empty.

    A call that only ends in it is not a call in it: where clients keep step, whole calls would be counted or missed
    in one instant. Where the server sends no token ids, a call's tokens count as spread evenly over its chunks.
    """
    if end_ns <= begin_ns:
        return None
    requests, tokens = 0.0, 0.0
    for exchange in exchanges:
        arrivals = exchange.timings.arrivals
        even = (exchange.output_tokens or len(arrivals)) / max(1, len(arrivals))
        counted = [even if arrival.tokens is None else arrival.tokens for arrival in arrivals]
        stamps = [exchange.timings.sent_ns + arrival.at_ns for arrival in arrivals]
        inside = sum(count for count, at in zip(counted, stamps, strict=True) if begin_ns <= at < end_ns)
        tokens += inside
        requests += inside / sum(counted) if inside else 0.0
    return _over(requests, tokens, end_ns - begin_ns)


def last_token_ns(exchange: Exchange) -> int | None:
    """`perf_counter_ns` of the last token; None for a call that failed or brought none."""
    last = exchange.timings.last_token_ns
    return None if last is None or exchange.error is not None else exchange.timings.sent_ns + last


def _times(seen: Sequence[float], tokens: int) -> CallTimes:
    if not seen:
        return CallTimes(None, (), None, None)
    tpot = (seen[-1] - seen[0]) / (tokens - 1) if tokens > 1 else None
    return CallTimes(seen[0], tuple(b - a for a, b in pairwise(seen)), tpot, seen[-1])


def _over(requests: float, tokens: float, duration_ns: int) -> Throughput:
    seconds = duration_ns * NS
    return Throughput(seconds, requests / seconds, tokens / seconds)
