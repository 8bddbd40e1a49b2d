"""The studies `prefix-cache` and `prefix-cache-live`: what ways of building a context cost, and what they break."""

from __future__ import annotations

from experiments.prefix_cache.arms import ARMS
from experiments.prefix_cache.live import PrefixCacheLiveStudy
from experiments.prefix_cache.study import PrefixCacheStudy

__all__ = ["ARMS", "PrefixCacheLiveStudy", "PrefixCacheStudy"]
