"""The study `latency`: how fast a served model is under each load, and how far that is from what the machine allows."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Final

from pydantic import JsonValue

from experiments.framework import (
    Analysis,
    Arm,
    InfrastructureError,
    Size,
    Study,
    TrialContext,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
)
from experiments.framework.failures import failed_by_machinery
from experiments.framework.served_model import ServedModel
from experiments.latency import cells
from experiments.latency.analysis import analyse
from experiments.latency.energy import Meter, counters_of
from experiments.latency.load import Loaded, Sent, closed_loop, open_loop
from experiments.latency.measures import call_records, measures_of
from experiments.latency.roofline import measure_ceilings
from experiments.latency.selfcheck import check_shares
from experiments.latency.target import Target, from_served
from experiments.latency.workload import (
    Asking,
    Conversation,
    Shape,
    check_reuse,
    conversations,
    poisson_arrivals,
)
from serving.client import AsyncClient, Surface
from serving.errors import InequalityError, LabError, UsageError

REQUESTS: Final = {"quick": 4, "full": 16}
"""Measured requests (or conversations) of each trial."""


def default_cells() -> tuple[Arm, ...]:
    """A sweep of every axis around one cell, small enough for two cores."""
    sweep = [cells.closed(concurrency, cells.USUAL) for concurrency in (1, 2, 4, 8)]
    grid = [
        cells.closed(1, Shape(prompt_tokens=prompt, output_tokens=output))
        for prompt, output in ((64, 16), (512, 16), (64, 64), (512, 64))
    ]
    hits = [
        cells.closed(1, Shape(prompt_tokens=512, output_tokens=8, hit_percent=share))
        for share in (0, 25, 50, 75, 100)
    ]
    talk = cells.closed(1, cells.USUAL.model_copy(update={"turns": 3}))
    return (*sweep, *grid, *hits, talk, cells.poisson(0.2, cells.USUAL))


class LatencyStudy(Study[ServedModel | Target]):
    """Sends each load to a served model, several times over, and holds the times against the machine's ceilings."""

    name = "latency"
    title = "How fast this machine serves a model, and how far that is from its ceilings"
    question = (
        "Time to first token, time per token and throughput under each load: how much of the time does the machine "
        "need, and how much do the prompt's length, its uncached part and the other clients add?"
    )
    null_arm = cells.AGAIN

    def __init__(
        self,
        model: str,
        *,
        block_size: int = 32,
        loads: Sequence[Arm] | None = None,
        urls: Sequence[str] = (),
        sizes: Sequence[Size] = (),
        requests: int | None = None,
        with_ceilings: bool = True,
    ) -> None:
        """Args: `loads` cells of `cells.closed` and `cells.poisson`, else a sweep of every axis; `urls` servers that
        run already, worked through one after the other, else one is started for `model` with `block_size`;
        `requests` measured in every trial, by default what `REQUESTS` says of the size.
        """
        chosen = default_cells() if loads is None else tuple(loads)
        if not chosen:
            raise UsageError(
                "Expected at least one load, got none: give a concurrency or a rate, and lengths."
            )
        if twice := sorted({arm.name for arm in chosen if [one.name for one in chosen].count(arm.name) > 1}):
            raise UsageError(f"Expected every load once, got {', '.join(twice)} more than once.")
        if len(set(urls)) < len(urls):
            raise UsageError(f"Expected every server once, got {', '.join(urls)}.")
        self._requests = requests
        self.base: dict[str, JsonValue] = {**cells.base_load(), "engine.model": model}
        if urls:
            self.base["engine.url"] = urls[0]
        else:
            self.base |= {
                "engine.block_size": block_size,
                "engine.max_model_len": 8192,
                "engine.kv_cache_bytes": None,
            }
        self.declared = frozenset(path for path in self.base if path.startswith(("load.", "harness."))) | (
            {"engine.url"} if urls else set()
        )
        more = (*chosen, *([cells.ceilings()] if with_ceilings else []), cells.again(chosen[0]))
        others = (cells.at_url(arm, url, n) for n, url in enumerate(urls[1:], start=2) for arm in chosen)
        self.arms = (*more, *others)
        self.sizes = tuple(sizes) or (
            Size(name="quick", tasks=1, seeds=2),
            Size(name="full", tasks=1, seeds=5),
        )

    def plan(self, size: Size) -> tuple[TrialSpec, ...]:
        """Seeds draw prompts and arrival times; the task's name says how many requests are measured."""
        requests = self._requests or REQUESTS[size.name]
        return tuple(TrialSpec(task=f"requests-{requests}", seed=seed) for seed in range(size.seeds))

    def run_trial(self, spec: TrialSpec, context: TrialContext[ServedModel | Target]) -> TrialOutcome:
        """Warm up, send one load, check what was reused; `InequalityError` where it is not what was asked."""
        factors = dict(context.factors)
        target = context.target if isinstance(context.target, Target) else from_served(context.target)
        if factors["load.kind"] == cells.Load.NONE:
            return _measured_ceilings(target)
        shape = cells.shape_of(factors)
        clients = cells.clients_of(factors)
        # Fewer would be all ramp and drain.
        requests = max(int(spec.task.rpartition("-")[2]), 2 * (clients or 1))
        # A server slower than the arrivals meets all of them at once.
        _check_pool(shape, clients or requests, target)
        loaded = target.client.run(
            lambda client: _send(client, factors, shape, requests, spec, target, context.salt)
        )
        _require_answers(loaded.calls)
        exchanges = tuple(call.exchange for call in loaded.calls)
        _check_reuse(loaded, shape, target)
        return TrialOutcome(
            exchanges=exchanges,
            calls=call_records(loaded, target.block_size if _is_exact(target) else None),
            measures=measures_of(loaded, shape, target.figures),
            outcome=f"{len(exchanges)} calls answered",
        )

    def verify(self, records: Iterable[TrialRecord]) -> None:
        """No result beats a ceiling beyond its interval: then the ceiling, or the account of the work, is wrong."""
        check_shares(tuple(records))

    def analyse(self, records: Sequence[TrialRecord]) -> Analysis:
        """Times and rates of every cell with intervals over seeds, and as shares of the machine's floor."""
        return analyse(self.arms, records)


def _measured_ceilings(target: Target) -> TrialOutcome:
    if target.dtype is None or target.device is None:
        return TrialOutcome(outcome="unknown number type or device: no floor is told")
    found = measure_ceilings(target.dtype, target.device)
    return TrialOutcome(
        measures={
            "ceiling_bytes_per_s": found.bytes_per_s,
            "ceiling_flop_per_s": found.flop_per_s,
            "threads": found.threads,
        },
        outcome=f"{found.bytes_per_s / 1e9:.1f} GB/s, {found.flop_per_s / 1e9:.1f} GFLOP/s in {found.dtype}",
    )


async def _send(
    client: AsyncClient,
    factors: dict[str, JsonValue],
    shape: Shape,
    requests: int,
    spec: TrialSpec,
    target: Target,
    salt: str,
) -> Loaded:
    """The warm-up, of which nothing is kept, then the load."""
    asking = Asking(
        model=target.model,
        surface=target.surface,
        output_tokens=shape.output_tokens,
        salt=salt if target.is_vllm else None,
        is_vllm=target.is_vllm,
    )
    # Where no salt keeps trials apart, new words have to.
    seed = [spec.seed] if target.is_vllm else [spec.seed, *salt.encode()]
    drawn = conversations(shape, requests + 1, target.vocabulary, seed)
    first, todo = drawn[0], drawn[1:]
    # One turn: it leaves the shared beginning in the cache, and the engine has run once at these lengths.
    await _warm_up(closed_loop(client, asking, shape, [Conversation(first.pieces[:1])], 1))
    meter = Meter(counters_of(target.device))
    clients = cells.clients_of(factors)
    if clients is None:
        due = poisson_arrivals(cells.number(factors, "load.rate_per_s"), len(todo), [*seed, 1])
        loaded = await open_loop(client, asking, shape, todo, due)
    else:
        loaded = await closed_loop(client, asking, shape, todo, clients)
    return replace(loaded, joules=meter.joules())


async def _warm_up(load: Coroutine[None, None, Loaded]) -> None:
    _require_answers((await load).calls)


def _require_answers(calls: Sequence[Sent]) -> None:
    """Raise for a call that failed: the machinery's failure is tried again, a refusal is the load's own mistake."""
    exchanges = tuple(call.exchange for call in calls)
    if failure := failed_by_machinery(exchanges):
        raise InfrastructureError(failure.sentence)
    for exchange in exchanges:
        exchange.raise_for_error()


def _check_reuse(loaded: Loaded, shape: Shape, target: Target) -> None:
    """Every call of a token-in load reuses what was asked, to the block; raises `InequalityError`."""
    if target.block_size is None or not _is_exact(target):
        return
    for number, call in enumerate(loaded.calls):
        usage = call.exchange.usage
        cached = None if usage is None else usage.cached_tokens
        if cached is None:
            raise LabError(
                f"Expected the number of cached tokens in call {number}, and the server does not tell it: start vLLM "
                "with --enable-prompt-tokens-details."
            )
        if not check_reuse(call.reusable_tokens, cached, target.block_size):
            raise InequalityError(
                f"Cached tokens of call {number} (conversation {call.conversation}, turn {call.turn}), "
                f"{shape.hit_percent} % asked",
                expected=f"{max(0, call.reusable_tokens - target.block_size)} to {call.reusable_tokens} "
                f"({call.reusable_tokens} reusable, blocks of {target.block_size})",
                got=str(cached),
            )


def _is_exact(target: Target) -> bool:
    """Lengths in words are no lengths in tokens, and without salts earlier trials may be met."""
    return target.surface is Surface.TOKEN_IN and target.is_vllm


def _check_pool(shape: Shape, at_once: int, target: Target) -> None:
    """Refuse a pool in which a running load could evict the shared beginning that it is to reuse."""
    if target.num_blocks is None or target.block_size is None:
        return
    asked = shape.prompt_tokens + (shape.turns - 1) * shape.follow_up_tokens
    longest = asked + shape.turns * shape.output_tokens
    needed = (at_once + 1) * -(-longest // target.block_size)
    if needed >= target.num_blocks:
        raise LabError(
            f"{at_once} calls of {longest} tokens need {needed} blocks of {target.block_size} tokens and the pool "
            f"has {target.num_blocks}: serve with a larger KV cache, or lower the load."
        )
