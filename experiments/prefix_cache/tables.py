"""The study's tables: what each arm costs, what its tokens were lost to, and what broke first in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from experiments.framework import CallRecord, Table
from experiments.framework.analysis import Cell
from experiments.framework.arms import NULL_REBUILD
from experiments.framework.statistics import SEEDS_FOR_INTERVAL, holm
from experiments.prefix_cache.arms import APPEND_ONLY
from experiments.prefix_cache.times import added_waits, total_time
from experiments.prefix_cache.workload import CACHED, FREE, Workload, named_tokens, parts_of


def cost_table(workloads: Sequence[Workload]) -> Table:
    """One line an arm: tokens, the ceiling, and seconds."""
    rows: list[tuple[Cell, ...]] = []
    for workload in workloads:
        reference = workload.mean(APPEND_ONLY, "uncached_tokens")
        effects = added_waits(workload)
        adjusted = holm(
            {
                name: effect.p_value
                for name, effect in effects.items()
                if name != NULL_REBUILD and effect.p_value is not None
            }
        )
        for arm in workload.arms:
            uncached = workload.mean(arm.name, "uncached_tokens")
            effect = effects.get(arm.name)
            whole = total_time(workload, arm.name)
            rows.append(
                (
                    workload.label(arm),
                    workload.mean(arm.name, "prompt_tokens"),
                    workload.share(arm.name),
                    _of_ceiling(workload, arm.name),
                    uncached,
                    uncached / reference if uncached is not None and reference else None,
                    workload.mean(arm.name, "ttft_s"),
                    effect.interval.words("+.2f") if effect else "",
                    adjusted.get(arm.name, ""),
                    "" if effect is None or effect.detectable is None else effect.detectable,
                    None if whole is None else whole.words(".2f"),
                )
            )
    return Table(
        title="Cost of a replayed run",
        columns=(
            "arm",
            "prompt tokens",
            "cached share",
            "of its ceiling",
            "tokens computed",
            "× append-only",
            "sum of TTFT, s",
            "added TTFT, s [95 %]",
            "p (Holm)",
            "detectable, s",
            "total time, s [95 %]",
        ),
        rows=tuple(rows),
        note="Means over seeds. The ceiling is what prompts of these lengths could have reused if each had begun with "
        "all that an earlier call left, in whole blocks. Times of a single seed are one pass over the run and no "
        "measurement of an arm. Added TTFT is against append-only of the same tour, paired by "
        f"seed. Intervals resample seeds and need at least {SEEDS_FOR_INTERVAL}; p is a sign-flip test, Holm over "
        "arms without the null; detectable is the smallest true difference that this run would have found 8 times in "
        "10.",
    )


def loss_table(workloads: Sequence[Workload]) -> Table:
    """The computed tokens of every arm by cause; each line adds up."""
    causes = parts_of(workloads)[1:]
    rows: list[tuple[Cell, ...]] = []
    for workload in workloads:
        for arm in workload.arms:
            split = workload.split(arm.name)
            computed = sum(tokens for part, tokens in split.items() if part != CACHED)
            rows.append((workload.label(arm), computed, *(split.get(cause, 0) for cause in causes)))
    return Table(
        title="What the computed tokens were lost to",
        columns=("arm", "tokens computed", *causes),
        rows=tuple(rows),
        note="Tokens of a run, means over seeds. New tokens, the rest of a block and the last token are computed in "
        "any run; all other causes are losses. Each line adds up to its tokens computed.",
    )


def break_table(workloads: Sequence[Workload]) -> Table:
    """Every arm explained, with the first token that differs from what was stored."""
    rows: list[tuple[Cell, ...]] = []
    for workload in workloads:
        for arm in workload.arms:
            broken = [
                (number, call)
                for record in workload.of(arm.name)
                for number, call in enumerate(record.calls)
                if call.first_broken is not None
            ]
            calls = sum(len(record.calls) for record in workload.of(arm.name))
            places = Counter(call.first_broken for _, call in broken)
            number, call = broken[0] if broken else ("", None)
            excerpt = call.excerpt if call else None
            rows.append(
                (
                    workload.label(arm),
                    arm.why,
                    f"{len(broken)} of {calls}",
                    number,
                    call.first_broken if call else "none: every call extends what was stored",
                    _cause(call),
                    excerpt.position if excerpt else "",
                    excerpt.stored_text if excerpt else "",
                    excerpt.sent_text if excerpt else "",
                    len(places),
                )
            )
    return Table(
        title="What broke first",
        columns=(
            "arm",
            "what it does",
            "calls that leave the stored prefix",
            "first such call",
            "first broken message",
            "cause",
            "first broken token",
            "stored there",
            "sent instead",
            "different places",
        ),
        rows=tuple(rows),
        note="Found by comparing token ids; calls and tokens count from 0. The texts begin with the first token that "
        "differs.",
    )


def _of_ceiling(workload: Workload, arm: str) -> float | None:
    cached, ceiling = workload.cached(arm), workload.ceiling(arm)
    return cached / ceiling if cached is not None and ceiling else None


def _cause(call: CallRecord | None) -> str:
    """The cause of most of the tokens that a call lost."""
    lost = {
        cause: tokens for cause, tokens in (named_tokens(call) if call else {}).items() if cause not in FREE
    }
    return max(lost, key=lambda cause: lost[cause]) if lost else ""
