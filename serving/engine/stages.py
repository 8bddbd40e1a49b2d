"""Where a starting engine is, read from its log."""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    """The stages a user sees, in order."""

    STARTING = "start the engine"
    CONFIGURING = "read the model's configuration"
    LOADING = "load the weights"
    WARMING = "make the KV cache and warm up"
    READY = "ready"


_MARKERS = (
    (Stage.READY, ("Starting vLLM server on", "Application startup complete")),
    (Stage.WARMING, ("KV cache size:", "init engine (profile, create kv cache", "Supported tasks:")),
    (Stage.LOADING, ("Starting to load model", "Initializing a V1 LLM engine", "Loading safetensors")),
    (Stage.CONFIGURING, ("non-default args:", "Resolved architecture:", "Using max model len")),
)
"""Words of vLLM 0.32's log; a marker that a later version drops only makes one stage invisible."""


def furthest_stage(log: str) -> Stage:
    """The furthest stage whose marker stands in the log."""
    for stage, markers in _MARKERS:
        if any(marker in log for marker in markers):
            return stage
    return Stage.STARTING
