"""From calls measured by `serving/call.py` to what a run keeps of them."""

from __future__ import annotations

from collections.abc import Iterable

from experiments.framework.trials import BreakExcerpt, CallRecord
from serving.call import MeasuredCall


def call_record(call: MeasuredCall, *, predictable: bool = True) -> CallRecord:
    """A measured call as the run keeps it; `predictable` as the call's `Caller` was told: False keeps no prediction."""
    usage = call.exchange.usage
    broken = call.first_break if predictable else None
    return CallRecord(
        prompt_tokens=None if usage is None else usage.prompt_tokens,
        cached_tokens=call.cached_tokens,
        predicted_tokens=call.prediction.cached_tokens if predictable else None,
        output_tokens=call.exchange.output_tokens,
        ttft_s=call.exchange.ttft_s,
        latency_s=call.exchange.latency_s,
        causes={cause.value: tokens for cause, tokens in call.prediction.causes.items()}
        if predictable
        else {},
        first_broken=None if broken is None else broken.words(),
        excerpt=None
        if broken is None
        else BreakExcerpt(
            position=broken.position,
            stored_ids=broken.stored_ids,
            sent_ids=broken.sent_ids,
            stored_text=broken.stored_text,
            sent_text=broken.sent_text,
        ),
    )


def total(values: Iterable[float | None]) -> float | None:
    """The sum, or None where one part is unknown."""
    parts = tuple(values)
    known = [value for value in parts if value is not None]
    return sum(known) if len(known) == len(parts) else None
