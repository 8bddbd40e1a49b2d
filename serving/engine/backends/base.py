"""The small protocol behind which every engine stands."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from serving.engine.config import BackendName, Dtype, EngineConfig
from serving.engine.machine import Machine

__all__ = ["Availability", "Backend", "BackendName", "BackendPlan"]


class Availability(BaseModel):
    """Whether a backend can run on a machine, and the reason in words either way."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    usable: bool
    reason: str


class BackendPlan(BaseModel):
    """What one backend adds to the common command."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    python: Path
    """The interpreter whose environment holds the engine."""
    flags: tuple[str, ...]
    env: dict[str, str]
    notes: tuple[str, ...]


def length_flags(config: EngineConfig) -> tuple[str, ...]:
    """The longest request: as asked, else the model's limit or what fits into the cache (`auto`)."""
    return ("--max-model-len", str(config.max_model_len or "auto"))


class Backend(Protocol):
    """One kind of engine: pure functions of a machine and a configuration."""

    @property
    def name(self) -> BackendName: ...

    def availability(self, machine: Machine) -> Availability:
        """Whether this engine can run here, and why."""

    def dtype(self, config: EngineConfig, machine: Machine) -> Dtype:
        """The number format the engine will use: the one asked for, or this backend's choice."""

    def plan(self, config: EngineConfig, machine: Machine) -> BackendPlan:
        """The flags and environment of this backend; UsageError where it cannot do what is asked."""
