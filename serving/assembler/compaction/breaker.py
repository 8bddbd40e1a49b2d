"""The breaker: a summariser that keeps failing is not asked again until the log has grown."""

from __future__ import annotations

from collections.abc import Sequence

from serving.assembler.compaction.policy import CompactionPolicy
from serving.assembler.compaction.records import Compaction, CompactionFailure


def retry_at(
    policy: CompactionPolicy,
    version: str,
    log_items: int,
    done: Sequence[Compaction],
    failures: Sequence[CompactionFailure],
) -> int | None:
    """The length of the log at which an open breaker lets one try through; None: it is not open.

    It opens after `max_failures` failures of this strategy and version since its last success. Half open, it
    lets one try through for every `retry_after_items` items that the log has grown since the last failure: no
    failure disables compaction for ever, and a log that stands still is asked a bounded number of times. Time
    is the length of the log, since the assembler has no clock.
    """
    since = max((made.log_items for made in done if made.strategy is policy.strategy), default=0)
    # A failure at the length of the last success counts: not to count it could go on without end.
    counted = [
        failure.log_items
        for failure in failures
        if failure.strategy is policy.strategy
        and failure.strategy_version == version
        and failure.log_items >= since
    ]
    if len(counted) < policy.max_failures:
        return None
    due = max(counted) + policy.retry_after_items
    return None if log_items >= due else due
