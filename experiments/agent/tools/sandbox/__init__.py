"""Runs a program that nobody trusts: isolated by the operating system, or not at all."""

from __future__ import annotations

from experiments.agent.tools.sandbox.isolation import Sandbox, isolation
from experiments.agent.tools.sandbox.limits import (
    Ended,
    Limits,
    NoIsolationError,
    SandboxFailedError,
    SandboxResult,
)

__all__ = [
    "Ended",
    "Limits",
    "NoIsolationError",
    "Sandbox",
    "SandboxFailedError",
    "SandboxResult",
    "isolation",
]
