"""What the records of the study `prefix-cache` say: tokens and times per arm beside append-only."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from experiments.framework import (
    Analysis,
    Arm,
    Bar,
    BarFigure,
    Stack,
    StackedFigure,
    Table,
    TrialRecord,
    by_cluster,
    paired_effect,
)
from experiments.framework.statistics import SEEDS_FOR_INTERVAL, Interval, PairedEffect, bounded, holm
from serving.errors import UsageError
from serving.prefix import Cause

APPEND_ONLY = "append-only"
"""The arm that all others are compared with."""


def analyse(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Analysis:
    """Tables, figures and a conclusion, every sentence of it computed; arms without a record are left out."""
    ran = [arm for arm in arms if any(record.arm == arm.name for record in records)]
    if not ran:
        raise UsageError(
            f"No record is of an arm of this study; its arms are {', '.join(arm.name for arm in arms)}."
        )
    return Analysis(
        conclusion=_conclusion(ran, records),
        tables=(_cost_table(ran, records), _break_table(ran, records)),
        figures=tuple(_figures(ran, records)),
    )


def _mean(records: Sequence[TrialRecord], arm: str, measure: str) -> float | None:
    clusters = by_cluster(records, arm, measure)
    return float(np.mean([np.mean(values) for values in clusters.values()])) if clusters else None


def _share(records: Sequence[TrialRecord], arm: str) -> float | None:
    """Cached / prompt tokens over all calls; None where one count is unknown or there is no call."""
    own = [call for record in records if record.arm == arm for call in record.calls]
    counts = [(call.cached_tokens, call.prompt_tokens) for call in own]
    known = [(cached, prompt) for cached, prompt in counts if cached is not None and prompt is not None]
    prompts = sum(prompt for _, prompt in known)
    return sum(cached for cached, _ in known) / prompts if prompts and len(known) == len(own) else None


def _conclusion(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> str:
    calls = [call for record in records for call in record.calls]
    agreed = sum(c.predicted_tokens == c.cached_tokens for c in calls)
    sentences = [f"Predicted and reported cached tokens agree in {agreed} of {len(calls)} calls."]
    shares = {arm.name: _share(records, arm.name) for arm in arms}
    reference = _mean(records, APPEND_ONLY, "uncached_tokens")
    worst = max((arm for arm in arms), key=lambda arm: _mean(records, arm.name, "uncached_tokens") or 0.0)
    uncached = _mean(records, worst.name, "uncached_tokens")
    best, least = shares.get(APPEND_ONLY), shares[worst.name]
    if best is not None and least is not None and reference and uncached and uncached > reference:
        sentences.append(
            f"Append-only reuses {best:.0%} of its prompt tokens; the dearest habit here, "
            f"“{worst.title}”, reuses {least:.0%} and makes the server compute "
            f"{uncached / reference:.1f} times as many tokens."
        )
        effect = _time_effects(arms, records).get(worst.name)
        if effect is not None and effect.interval.low is not None:
            sentences.append(
                f"It adds {effect.interval.estimate:.1f} s of waiting for first tokens to the run "
                f"(95 % interval {effect.interval.low:.1f} to {effect.interval.high:.1f}, "
                f"{effect.clusters} seeds)."
            )
    return " ".join(sentences)


def _time_effects(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> dict[str, PairedEffect]:
    """What each arm adds to append-only's sum of TTFT, by arm; intervals only where seeds suffice."""
    base = by_cluster(records, APPEND_ONLY, "ttft_s")
    effects = {}
    for arm in arms:
        times = by_cluster(records, arm.name, "ttft_s")
        if arm.name != APPEND_ONLY and times.keys() & base.keys():
            effect = paired_effect(times, base, np.random.default_rng(0))
            effects[arm.name] = effect if effect.clusters >= SEEDS_FOR_INTERVAL else _bare(effect)
    return effects


def _bare(effect: PairedEffect) -> PairedEffect:
    interval = effect.interval.model_copy(update={"low": None, "high": None})
    return effect.model_copy(update={"interval": interval, "p_value": None, "detectable": None})


def _cost_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    reference = _mean(records, APPEND_ONLY, "uncached_tokens")
    effects = _time_effects(arms, records)
    raw = {name: effect.p_value for name, effect in effects.items() if effect.p_value is not None}
    adjusted = holm(raw)
    rows = []
    for arm in arms:
        uncached = _mean(records, arm.name, "uncached_tokens")
        effect = effects.get(arm.name)
        rows.append(
            (
                arm.title,
                _mean(records, arm.name, "prompt_tokens"),
                _share(records, arm.name),
                uncached,
                uncached / reference if uncached is not None and reference else None,
                _mean(records, arm.name, "ttft_s"),
                _signed(effect.interval) if effect else "",
                adjusted.get(arm.name, ""),
                "" if effect is None or effect.detectable is None else effect.detectable,
            )
        )
    return Table(
        title="Cost of a replayed run",
        columns=(
            "arm",
            "prompt tokens",
            "cached share",
            "tokens computed",
            "× append-only",
            "sum of TTFT, s",
            "added TTFT, s [95 %]",
            "p (Holm)",
            "detectable, s",
        ),
        rows=tuple(rows),
        note="Means over seeds; added TTFT is against append-only, paired by seed. Intervals resample seeds and "
        f"need at least {SEEDS_FOR_INTERVAL}; p is a sign-flip test, Holm over arms; detectable is the smallest "
        "true difference that this run would have found 8 times in 10.",
    )


def _signed(interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return f"{interval.estimate:+.2f}"
    return f"{interval.estimate:+.2f} [{interval.low:+.2f}, {interval.high:+.2f}]"


def _break_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    rows = []
    for arm in arms:
        broken = [
            (number, call)
            for record in records
            if record.arm == arm.name
            for number, call in enumerate(record.calls)
            if call.first_broken is not None
        ]
        places = Counter(call.first_broken for _, call in broken)
        number, call = broken[0] if broken else ("", None)
        excerpt = call.excerpt if call else None
        rows.append(
            (
                arm.title,
                len(broken),
                number,
                call.first_broken if call else "none: every call extends what was stored",
                excerpt.stored_text if excerpt else "",
                excerpt.sent_text if excerpt else "",
                len(places),
            )
        )
    return Table(
        title="What broke first",
        columns=(
            "arm",
            "calls that leave the stored prefix",
            "first such call",
            "first broken message",
            "stored there",
            "sent instead",
            "different places",
        ),
        rows=tuple(rows),
        note="Found by comparing token ids; calls count from 0.",
    )


def _figures(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Iterator[StackedFigure | BarFigure]:
    split = {arm.name: _split(records, arm.name) for arm in arms}
    causes = [cause for cause in Cause if any(parts[cause.value] for parts in split.values())]
    yield StackedFigure(
        name="tokens-by-cause",
        title="Where the prompt tokens of one run went",
        axis="prompt tokens of a replayed run (mean over seeds)",
        parts=("reused from the cache", *(_CAUSE_WORDS[cause] for cause in causes)),
        stacks=tuple(
            Stack(
                label=arm.title,
                values=(split[arm.name]["cached"], *(split[arm.name][cause.value] for cause in causes)),
            )
            for arm in arms
        ),
        caption="The first part costs almost nothing; all others are computed. They add up to the prompt tokens.",
    )
    bars = []
    for arm in arms:
        rows = np.array([[np.mean(values)] for values in by_cluster(records, arm.name, "ttft_s").values()])
        interval = bounded(rows) if rows.size else None
        bars.append(
            Bar(
                label=arm.title,
                value=interval.estimate if interval else None,
                low=interval.low if interval else None,
                high=interval.high if interval else None,
            )
        )
    yield BarFigure(
        name="time-to-first-token",
        title="Waiting for first tokens in one run",
        axis="sum of TTFT over the run's calls, seconds",
        bars=tuple(bars),
        caption="Means over seeds with 95 % bootstrap intervals where there are at least "
        f"{SEEDS_FOR_INTERVAL} seeds.",
    )


_CAUSE_WORDS = {
    Cause.NEW: "new at the end",
    Cause.DIVERGENCE: "other ids than stored",
    Cause.BLOCK_ROUNDING: "rest of a block",
    Cause.LAST_TOKEN: "last token",
    Cause.SALT: "cached under another salt",
    Cause.EVICTION: "evicted",
}


def _split(records: Sequence[TrialRecord], arm: str) -> Mapping[str, float]:
    """Mean tokens of a run by where they went, `cached` first among them; absent is 0."""
    own = [record for record in records if record.arm == arm]
    total: Counter[str] = Counter()
    for record in own:
        for call in record.calls:
            total["cached"] += call.cached_tokens or 0
            total.update(call.causes)
    return defaultdict(float, {name: tokens / len(own) for name, tokens in total.items()})
