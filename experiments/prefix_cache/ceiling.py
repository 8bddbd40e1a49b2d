"""The most that a run of such lengths could have reused: the block-rounded ceiling of its append-only twin.

The twin has the prompts of the same lengths, and each begins with all that any call before left behind. Its reuse
follows from lengths and block size alone, so it is a bound that no way of building a context can beat.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.framework import CallRecord, InequalityError, TrialRecord
from experiments.prefix_cache.arms import APPEND_ONLY
from experiments.prefix_cache.tours import Tour, tour_of
from serving.prefix.prediction import hit_tokens, stored_tokens


def ceilings(calls: Sequence[CallRecord], block_size: int) -> tuple[int, ...] | None:
    """Cached tokens of the twin, call by call; None where a count is unknown."""
    found: list[int] = []
    stored = 0
    for call in calls:
        if call.prompt_tokens is None or call.output_tokens is None:
            return None
        found.append(hit_tokens(stored, call.prompt_tokens, block_size))
        stored = max(stored, stored_tokens(call.prompt_tokens, call.output_tokens))
    return tuple(found)


def block_size_of(record: TrialRecord) -> int | None:
    """Tokens of one block as the server told them when the trial ran; None in runs that did not keep it."""
    size = record.measures.get("block_size")
    return size if isinstance(size, int) and not isinstance(size, bool) else None


def must_reach_ceiling(record: TrialRecord) -> bool:
    """Whether nothing may be lost in a trial: append-only of a tour without reasoning, which templates drop."""
    return record.arm == APPEND_ONLY and tour_of(record.task) is not Tour.THINKING


def check_ceiling(record: TrialRecord, *, reached: bool) -> None:
    """Raise `InequalityError` for a call above its ceiling and, with `reached`, for one below it."""
    size = block_size_of(record)
    bounds = None if size is None else ceilings(record.calls, size)
    if bounds is None:
        return
    for number, (call, bound) in enumerate(zip(record.calls, bounds, strict=True)):
        cached = call.cached_tokens
        if cached is not None and (cached > bound or (reached and cached < bound)):
            raise InequalityError(
                f"Cached tokens of call {number} of {record.spec.cluster}, arm {record.arm!r}",
                expected=f"{'exactly' if reached else 'at most'} {bound}, all whole blocks of what was stored",
                got=str(cached),
            )
