"""All strategies by name."""

from __future__ import annotations

from serving.assembler.compaction.policy import Strategy
from serving.assembler.compaction.strategies.adaptive_window import AdaptiveWindow
from serving.assembler.compaction.strategies.anchored_checkpoint import AnchoredCheckpoint
from serving.assembler.compaction.strategies.combined import Combined
from serving.assembler.compaction.strategies.none import NoneAtAll
from serving.assembler.compaction.strategies.per_result import PerResult
from serving.assembler.compaction.strategies.query_aware import QueryAware
from serving.assembler.compaction.strategies.query_aware_sources import QueryAwareSources
from serving.assembler.compaction.strategies.truncate import Truncate
from serving.assembler.compaction.strategy import CompactionStrategy

__all__ = ["strategy_named"]


def strategy_named(name: Strategy) -> CompactionStrategy:
    """The strategy that a policy names."""
    match name:
        case Strategy.NONE:
            return NoneAtAll()
        case Strategy.TRUNCATE:
            return Truncate()
        case Strategy.PER_RESULT:
            return PerResult()
        case Strategy.COMBINED:
            return Combined()
        case Strategy.QUERY_AWARE:
            return QueryAware()
        case Strategy.QUERY_AWARE_SOURCES:
            return QueryAwareSources()
        case Strategy.ADAPTIVE_WINDOW:
            return AdaptiveWindow()
        case Strategy.ANCHORED_CHECKPOINT:
            return AnchoredCheckpoint()
