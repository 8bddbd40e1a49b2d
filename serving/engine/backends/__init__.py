"""The engines the lab can drive, one a file."""

from __future__ import annotations

from serving.engine.backends.base import Availability, Backend, BackendName, BackendPlan
from serving.engine.backends.select import BACKENDS, BackendChoice, select_backend

__all__ = [
    "BACKENDS",
    "Availability",
    "Backend",
    "BackendChoice",
    "BackendName",
    "BackendPlan",
    "select_backend",
]
