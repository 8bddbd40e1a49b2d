"""`plan_compaction`: whether a log is due for compaction, what may go, and what to ask a summariser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from serving.assembler.compaction.policy import CompactionPolicy
from serving.assembler.compaction.records import (
    Compaction,
    CompactionFailure,
    CompactionPlan,
    CountTokens,
    NoCompaction,
)
from serving.assembler.items import ContextItem


def plan_compaction(
    history: Sequence[ContextItem],
    policy: CompactionPolicy,
    *,
    count: CountTokens,
    budget: int,
    used: int,
    done: Sequence[Compaction] = (),
    failures: Sequence[CompactionFailure] = (),
    rendered: Mapping[str, int] | None = None,
) -> CompactionPlan | NoCompaction:
    """Decide for the whole log `history`, of which `done` covers a part already; pure.

    `used` are the tokens of the rendered prompt as it would go out now, `rendered` those of single items in
    it by id (`Rendered.tokens_by_item`), where known.
    """
    raise NotImplementedError
