"""`finish`: from the answers of a summariser to a compaction, or to a failure that says why there is none."""

from __future__ import annotations

from collections.abc import Sequence

from serving.assembler.compaction.records import (
    Compaction,
    CompactionFailure,
    CompactionPlan,
    CountTokens,
    SummaryAnswer,
)


def finish(
    plan: CompactionPlan, answers: Sequence[SummaryAnswer], count: CountTokens
) -> Compaction | CompactionFailure:
    """Check every answer of `plan.tasks`, in their order, and put together what stands for the covered items."""
    raise NotImplementedError


def call_failed(plan: CompactionPlan, detail: str) -> CompactionFailure:
    """The failure to store when a call of the summariser itself failed; `detail` is the client's sentence."""
    raise NotImplementedError
