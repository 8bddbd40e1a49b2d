"""Engines: what this machine can run, the command for it, and a process that certainly ends.

Following an engine's KV events is in `live_mirror` and `subscription`, which need more than a command line should load.
"""

from __future__ import annotations

from serving.engine.attach import AttachedEngine, attach
from serving.engine.backends import BackendChoice, BackendName, select_backend
from serving.engine.config import Dtype, EngineCommand, EngineConfig
from serving.engine.kv_events import KVEventsEndpoint, lab_endpoint
from serving.engine.machine import Gpu, Machine, inspect_machine
from serving.engine.plan import plan_command
from serving.engine.preflight import preflight
from serving.engine.rootcause import Failure, RootCause, root_cause
from serving.engine.running import RunningEngine, start
from serving.engine.stages import Stage

__all__ = [
    "AttachedEngine",
    "BackendChoice",
    "BackendName",
    "Dtype",
    "EngineCommand",
    "EngineConfig",
    "Failure",
    "Gpu",
    "KVEventsEndpoint",
    "Machine",
    "RootCause",
    "RunningEngine",
    "Stage",
    "attach",
    "inspect_machine",
    "lab_endpoint",
    "plan_command",
    "preflight",
    "root_cause",
    "select_backend",
    "start",
]
