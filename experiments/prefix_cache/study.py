"""The study `prefix-cache`: how ways of building the same context change the tokens that a server reuses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from pydantic import JsonValue

from experiments.faults import FaultContext, build_faults
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
from experiments.framework.measured import call_record, ids_and_reuse, null_pairs, total
from experiments.framework.served_model import ServedModel
from experiments.prefix_cache.analysis import APPEND_ONLY, analyse
from experiments.workloads import file_tour
from serving.assembler import ContextPolicy, HandOff, RequestContext, Trajectory
from serving.call import Caller, DecodeOptions, MeasuredCall
from serving.errors import InequalityError, LabError

BEGIN = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
"""When the replayed run says it happened; call n is n × 37 s later, so that a clock never stands still."""
STEP = timedelta(seconds=37)

NULL_REBUILD = "null-rebuild"

CALLS = {"quick": 6, "timing": 6, "full": 16}
"""Calls of the trajectory that each size replays."""


def _fault(name: str, title: str, why: str, fault: str) -> Arm:
    return Arm(name=name, title=title, why=why, factors={"fault.applied": [fault]})


ARMS = (
    Arm(
        name=APPEND_ONLY,
        title="Append-only",
        why="Every request repeats the one before and adds to its end. This is what a prefix cache is made for.",
    ),
    Arm(
        name=NULL_REBUILD,
        title="Rebuilt (null)",
        why="The same bytes built anew from a stored copy, with every unordered input in another order. Any "
        "difference to append-only is the noise of the measurement.",
        factors={"harness.rebuild": True},
    ),
    _fault(
        "clock-system-head",
        "Clock in the system prompt",
        "The time of day is the first thing the model reads. It changes in every call, and nothing behind it "
        "can be reused.",
        "clock-in-system-head",
    ),
    _fault(
        "clock-last-message",
        "Clock in the last message",
        "The time of day stands at the end of the newest message. The next call sends that message without "
        "it, so only the tail is computed again.",
        "clock-in-last-message",
    ),
    _fault(
        "tools-shuffled",
        "Tools in changing order",
        "The same tools come in another order each time, as from a set. Templates print them near the head, "
        "so almost everything is computed again.",
        "tools-shuffled",
    ),
    _fault(
        "sliding-window",
        "Sliding window of 6 messages",
        "Only the newest messages are sent. Prompts are short, but each begins its history elsewhere, so what "
        "is sent is computed anew.",
        "sliding-window",
    ),
    _fault(
        "text-transcript",
        "Transcript as text",
        "The conversation is flattened into one user message that grows at its end. The prefix survives; "
        "roles and call structure do not.",
        "text-transcript",
    ),
)


class PrefixCacheStudy(Study[ServedModel]):
    """Replays one fixed trajectory call by call under each arm and compares tokens reused with tokens predicted."""

    name = "prefix-cache"
    title = "What each way of building the context costs the prefix cache"
    question = (
        "The same agent run, replayed call by call: how many prompt tokens does the server have to compute "
        "again when the context is built in another way?"
    )
    declared = frozenset({"fault.applied", "harness.rebuild"})
    arms = ARMS
    null_arm = NULL_REBUILD
    sizes = (
        Size(name="quick", tasks=1, seeds=1),
        Size(name="timing", tasks=1, seeds=10),
        Size(name="full", tasks=1, seeds=2),
    )

    def __init__(self, model: str, *, block_size: int = 32) -> None:
        """Args: `model` a catalogue name, hub id or folder whose template has tools; `block_size` in tokens."""
        self.base: dict[str, JsonValue] = {
            "fault.applied": [],
            "harness.rebuild": False,
            "decode.max_tokens": 1,
            "engine.model": model,
            "engine.block_size": block_size,
            "engine.max_model_len": 8192,
            "engine.kv_cache_bytes": 1 << 30,
        }

    def plan(self, size: Size) -> tuple[TrialSpec, ...]:
        """Repeats outermost; the task's name says how many calls it replays."""
        return tuple(
            TrialSpec(task=f"file-tour-{CALLS[size.name]}", seed=seed, repeat=repeat)
            for repeat in range(size.repeats)
            for seed in range(size.seeds)
        )

    def run_trial(self, spec: TrialSpec, context: TrialContext[ServedModel]) -> TrialOutcome:
        """Replay the trajectory's calls under one arm; `InequalityError` at the first broken equality."""
        target = context.target
        trajectory = file_tour(spec.seed)
        # A prediction of its own for every trial: the salt separates it from all others, and a pool that
        # holds the whole trial (checked below) never evicts what the trial may reuse.
        caller = Caller(target.client, target.folder, block_size=target.block_size)
        calls: list[MeasuredCall] = []
        for number in range(int(spec.task.rpartition("-")[2])):
            calls.append(self._call(caller, trajectory, number, spec, context))
            _check_pool(calls, target)
        kept = tuple(call_record(call) for call in calls)
        prompt = total([call.prompt_tokens for call in kept])
        cached = total([call.cached_tokens for call in kept])
        return TrialOutcome(
            exchanges=tuple(call.exchange for call in calls),
            calls=kept,
            manifests=tuple(call.packet.manifest for call in calls),
            measures={
                "prompt_tokens": prompt,
                "cached_tokens": cached,
                "uncached_tokens": None if prompt is None or cached is None else prompt - cached,
                "ttft_s": total([call.ttft_s for call in kept]),
            },
            outcome=f"{len(calls)} calls replayed",
        )

    def _call(
        self,
        caller: Caller,
        trajectory: Trajectory,
        number: int,
        spec: TrialSpec,
        context: TrialContext[ServedModel],
    ) -> MeasuredCall:
        max_tokens = context.factors["decode.max_tokens"]
        applied = context.factors["fault.applied"]
        if not isinstance(max_tokens, int) or not isinstance(applied, list):
            raise LabError("decode.max_tokens is a number and fault.applied a list of names.")
        now = BEGIN + number * STEP
        if context.factors["harness.rebuild"]:
            trajectory = _rebuilt(trajectory)
        request = trajectory.request(
            number,
            context=RequestContext(tenant="lab", actor="study", now=now),
            window=context.target.max_model_len,
            max_output=max_tokens,
            run_id=context.salt,
            surface=f"{context.target.folder.name}/chat",
        )
        if context.factors["harness.rebuild"]:
            request = request.model_copy(update={"tools": request.tools[::-1]})
        faults = build_faults([str(name) for name in applied], FaultContext(number, now, spec.seed))
        decode = DecodeOptions(max_tokens=max_tokens)
        call = caller.call(request, ContextPolicy(), decode, salt=context.salt, faults=faults)
        if isinstance(call, HandOff):
            raise LabError(
                f"Call {number} does not fit: {call.needed} tokens of {call.budget}. Serve a longer context."
            )
        if call.exchange.error is not None:
            raise InfrastructureError(call.exchange.error.sentence)
        return call

    def verify(self, records: Iterable[TrialRecord]) -> None:
        """The null arm reads the ids and reuses the tokens of append-only, call by call."""
        pairs = null_pairs(records, base=APPEND_ONLY, null=NULL_REBUILD, seen=ids_and_reuse)
        for spec, mine, remade in pairs:
            if mine != remade:
                both = zip(mine, remade, strict=False)
                call, (one, other) = next((n, pair) for n, pair in enumerate(both) if pair[0] != pair[1])
                raise InequalityError(
                    f"Call {call} of {spec.cluster}, rebuilt from a stored copy",
                    expected=f"{len(one[0] or ())} ids and {one[1]} cached tokens as append-only",
                    got=f"{len(other[0] or ())} ids and {other[1]} cached tokens"
                    + ("" if one[0] == other[0] else ", and the ids differ"),
                )

    def analyse(self, records: Sequence[TrialRecord]) -> Analysis:
        """Tokens and times per arm beside append-only; every sentence is computed."""
        return analyse(self.arms, records)


def _rebuilt(trajectory: Trajectory) -> Trajectory:
    return Trajectory.model_validate_json(trajectory.model_dump_json())


def _check_pool(calls: Sequence[MeasuredCall], target: ServedModel) -> None:
    """Refuse a pool that may have evicted blocks of this very trial, for the ceiling would be another one."""
    size = target.block_size
    blocks = sum(-(-(c.prediction.prompt_tokens - c.prediction.cached_tokens + 1) // size) for c in calls)
    if blocks >= target.num_blocks:
        raise LabError(
            f"This trial has filled {blocks} blocks of {size} tokens and the pool has {target.num_blocks}: "
            "serve with a larger KV cache, or replay fewer calls."
        )
