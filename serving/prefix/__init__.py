"""The prefix cache by numbers: block keys, the block pool, and the prediction of cached tokens."""

from __future__ import annotations

from serving.prefix.keys import BlockHasher, HashAlgorithm, event_key, seed_from
from serving.prefix.pool import BlockPool
from serving.prefix.prediction import Cause, Nearest, Prediction, PrefixRequest, Relation
from serving.prefix.predictor import Predictor, predict

__all__ = [
    "BlockHasher",
    "BlockPool",
    "Cause",
    "HashAlgorithm",
    "Nearest",
    "Prediction",
    "Predictor",
    "PrefixRequest",
    "Relation",
    "event_key",
    "predict",
    "seed_from",
]
