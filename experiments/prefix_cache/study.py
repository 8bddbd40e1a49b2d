"""The study `prefix-cache`: how ways of building the same context change the tokens that a server reuses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import JsonValue

from experiments.framework import (
    Analysis,
    Arm,
    Size,
    Study,
    TrialContext,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
)
from experiments.framework.arms import NULL_REBUILD
from experiments.framework.measured import call_record, check_replayed
from experiments.framework.served_model import ServedModel, check_pool
from experiments.framework.trials import total
from experiments.prefix_cache.analysis import analyse
from experiments.prefix_cache.arms import APPEND_ONLY, ARMS, BASE, REASONING, TIMED
from experiments.prefix_cache.ceiling import check_ceiling, must_reach_ceiling
from experiments.prefix_cache.replay import Replay, Way
from experiments.prefix_cache.tours import Tour, tour_of
from experiments.workloads import file_tour
from serving.assembler import Trajectory
from serving.models import reasons


class PrefixCacheStudy(Study[ServedModel]):
    """Replays one fixed trajectory call by call under each arm and compares tokens reused with tokens predicted."""

    name = "prefix-cache"
    title = "What each way of building the context costs the prefix cache"
    question = (
        "The same agent run, replayed call by call: how many prompt tokens does the server have to compute "
        "again when the context is built in another way?"
    )
    declared = frozenset(BASE)
    arms: tuple[Arm, ...] = ARMS
    null_arm = NULL_REBUILD
    sizes = (
        Size(name="quick", tasks=1, seeds=1),
        Size(name="timing", tasks=1, seeds=20),
        Size(name="full", tasks=2, seeds=1),
    )

    def __init__(self, model: str, *, block_size: int = 32) -> None:
        """Args: `model` a catalogue name, hub id or folder whose template has tools; `block_size` in tokens."""
        self._reasons = reasons(model)
        if not self._reasons:
            self.arms = tuple(arm for arm in ARMS if arm.name not in REASONING)
        self.base: dict[str, JsonValue] = {
            **BASE,
            "decode.max_tokens": 1,
            "engine.model": model,
            "engine.block_size": block_size,
            "engine.max_model_len": 8192,
            "engine.kv_cache_bytes": None,
        }

    def plan(self, size: Size) -> tuple[TrialSpec, ...]:
        """Repeats outermost; a task is a tour and how many of its calls are replayed.

        Counts are exact, so one seed is enough for them; times are not, so `timing` has twenty, each another tour.
        """
        return size.each(
            f"{tour.value}-{calls}"
            for tour, calls in _TASKS[size.name]
            if tour is not Tour.THINKING or self._reasons
        )

    def applies(self, arm: Arm, spec: TrialSpec) -> bool:
        """Reasoning arms belong to the tour with reasoning, which no other arm but the base and its null needs."""
        match tour_of(spec.task):
            case Tour.THINKING:
                return arm.name in REASONING | {APPEND_ONLY, NULL_REBUILD}
            case Tour.TIMED:
                return arm.name in TIMED
            case Tour.FILES:
                return arm.name not in REASONING

    def run_trial(self, spec: TrialSpec, context: TrialContext[ServedModel]) -> TrialOutcome:
        """Replay the trajectory's calls under one arm; `InequalityError` at the first broken equality."""
        target = context.target
        replay = Replay(
            trajectory_of(spec), Way.of(context.factors), target, seed=spec.seed, salt=context.salt
        )
        for _ in range(int(spec.task.rpartition("-")[2])):
            replay.call()
            check_pool(replay.calls, target)
        kept = tuple(call_record(call) for call in replay.calls)
        prompt = total([call.prompt_tokens for call in kept])
        cached = total([call.cached_tokens for call in kept])
        return TrialOutcome(
            exchanges=tuple(call.exchange for call in replay.calls),
            calls=kept,
            manifests=tuple(call.packet.manifest for call in replay.calls),
            measures={
                "block_size": target.block_size,
                "prompt_tokens": prompt,
                "cached_tokens": cached,
                "uncached_tokens": None if prompt is None or cached is None else prompt - cached,
                "ttft_s": total([call.ttft_s for call in kept]),
                "latency_s": total([call.latency_s for call in kept]),
                "compactions": replay.compactions,
            },
            outcome=f"{len(kept)} calls replayed",
        )

    def verify(self, records: Iterable[TrialRecord]) -> None:
        """The null arm reads the ids and reuses the tokens of append-only, call by call; that one is at its ceiling.

        No arm may be above its own ceiling (`ceiling.py`), and append-only may not be below it – but for the tour
        with reasoning, where Qwen3's template itself drops what was sent.
        """
        check_replayed(_ceilings_checked(records), base=APPEND_ONLY, null=NULL_REBUILD)

    def analyse(self, records: Sequence[TrialRecord]) -> Analysis:
        """Tokens and times per arm beside append-only; every sentence is computed."""
        return analyse(self.arms, records)


_TASKS = {
    "quick": ((Tour.FILES, 6),),
    "full": ((Tour.FILES, 16), (Tour.THINKING, 16)),
    "timing": ((Tour.TIMED, 6),),
}
"""By size: the tours and how many of their calls are replayed."""


def trajectory_of(spec: TrialSpec) -> Trajectory:
    """The fixed trajectory that every arm of a planned trial replays."""
    return file_tour(spec.seed, thinking=tour_of(spec.task) is Tour.THINKING)


def _ceilings_checked(records: Iterable[TrialRecord]) -> Iterable[TrialRecord]:
    for record in records:
        check_ceiling(record, reached=must_reach_ceiling(record))
        yield record
