"""The prefix cache by numbers: block keys, the block pool, and the prediction of cached tokens."""

from __future__ import annotations

from serving.prefix.bounds import CachedBounds, TimedRequest, bound_cached
from serving.prefix.keys import BlockHasher, HashAlgorithm, event_key, seed_from
from serving.prefix.mirror import (
    AllBlocksCleared,
    BlockKey,
    BlocksRemoved,
    BlocksStored,
    EventsLostError,
    KVEvent,
    MirrorStep,
    PoolBlock,
    PoolDifference,
    PoolMirror,
)
from serving.prefix.pool import BlockPool
from serving.prefix.prediction import Cause, Nearest, Prediction, PrefixRequest, Relation
from serving.prefix.predictor import Predictor, predict
from serving.prefix.rules import CacheKind, EngineTraits, Unsupported, unsupported

__all__ = [
    "AllBlocksCleared",
    "BlockHasher",
    "BlockKey",
    "BlockPool",
    "BlocksRemoved",
    "BlocksStored",
    "CacheKind",
    "CachedBounds",
    "Cause",
    "EngineTraits",
    "EventsLostError",
    "HashAlgorithm",
    "KVEvent",
    "MirrorStep",
    "Nearest",
    "PoolBlock",
    "PoolDifference",
    "PoolMirror",
    "Prediction",
    "Predictor",
    "PrefixRequest",
    "Relation",
    "TimedRequest",
    "Unsupported",
    "bound_cached",
    "event_key",
    "predict",
    "seed_from",
    "unsupported",
]
