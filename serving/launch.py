"""From a model's name to a served model: choose, pull, plan, check, start."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from serving.engine import (
    BackendChoice,
    BackendName,
    Dtype,
    EngineCommand,
    EngineConfig,
    Machine,
    RunningEngine,
    inspect_machine,
    lab_endpoint,
    plan_command,
    preflight,
    select_backend,
    start,
)
from serving.engine.kv_events import prepare
from serving.engine.plan import check_exposure
from serving.errors import UsageError
from serving.models import ModelChoice, ModelFolder, cache_root, choose, ensure
from serving.progress import Progress, Silent

DEFAULT_PORT = 8000


class LaunchOptions(BaseModel):
    """What a user may ask of a served model; None leaves the choice to the lab."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str | None = None
    """Catalogue name, hub id, folder or GGUF file; None: see `serving.models.choose`."""
    backend: BackendName | None = None
    host: str = "127.0.0.1"
    port: int = Field(default=DEFAULT_PORT, ge=0, le=65535)
    """0 takes a free port."""
    block_size: int | None = Field(default=None, ge=1)
    kv_cache_bytes: int | None = Field(default=None, ge=1)
    max_model_len: int | None = Field(default=None, ge=1)
    dtype: Dtype | None = None
    api_key: SecretStr | None = None
    kv_events: bool = False
    """Whether the engine tells what happens to its KV blocks, at sockets of this user (`ctxlab watch`)."""
    extra_flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class LaunchPlan:
    """Everything decided and nothing started."""

    choice: ModelChoice
    folder: ModelFolder
    machine: Machine
    backend: BackendChoice
    config: EngineConfig
    command: EngineCommand


def plan_launch(
    options: LaunchOptions,
    *,
    progress: Progress | None = None,
    environ: Mapping[str, str] | None = None,
) -> LaunchPlan:
    """Decide on a model and an engine, pulling the model when it is not on this disk.

    Starts nothing. Raises `UsageError` for a request that cannot work here and `LabError` when the model
    cannot be had.
    """
    environ = os.environ if environ is None else environ
    progress = progress or Silent()
    check_exposure(options.host, options.api_key)
    machine = inspect_machine()
    backend = select_backend(machine, options.backend)
    choice = choose(options.model, environ)
    progress.note(choice.reason)
    folder = ensure(choice.name, environ=environ, progress=progress)
    port = options.port or free_port(options.host)
    config = EngineConfig(
        model=folder,
        backend=backend.name,
        host=options.host,
        port=port,
        block_size=options.block_size,
        kv_cache_bytes=options.kv_cache_bytes,
        max_model_len=options.max_model_len,
        dtype=options.dtype,
        api_key=options.api_key,
        kv_events=lab_endpoint(port, environ) if options.kv_events else None,
        extra_flags=options.extra_flags,
    )
    return LaunchPlan(choice, folder, machine, backend, config, plan_command(config, machine))


def launch(
    plan: LaunchPlan,
    *,
    progress: Progress | None = None,
    log_path: Path | None = None,
    timeout_s: float = 600.0,
) -> RunningEngine:
    """Start the planned engine and return when it answers; a context manager that ends it.

    Raises `LabError` with the engine's root cause; nothing is left running then.
    """
    preflight(plan.config, plan.machine)
    if plan.config.kv_events is not None:
        prepare(plan.config.kv_events)
    return start(
        plan.command,
        log_path=log_path or default_log(plan.folder.name),
        progress=progress,
        timeout_s=timeout_s,
    )


def default_log(name: str) -> Path:
    """A fresh log file of an engine that serves `name`, below the lab's cache folder."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return cache_root() / "logs" / f"{name.replace('/', '--')}-{stamp}-{os.getpid()}.log"


def free_port(host: str) -> int:
    """A port nobody listens on at this moment; raises `UsageError` for a host that is none of this machine's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, 0))
        except (OSError, ValueError) as error:  # ValueError: a name that DNS cannot spell
            raise UsageError(
                f"Expected a host of this machine, such as 127.0.0.1, got {host!r} ({error}): give one of its "
                "own addresses."
            ) from error
        port: int = probe.getsockname()[1]
    return port
