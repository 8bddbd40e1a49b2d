"""The study `prefix-cache`: how ways of building the same context change the tokens that a server reuses."""

from __future__ import annotations

from experiments.prefix_cache.arms import ARMS
from experiments.prefix_cache.study import PrefixCacheStudy

__all__ = ["ARMS", "PrefixCacheStudy"]
