"""Which engine a machine should run, and why."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict

from serving.engine.backends.attach import AttachBackend
from serving.engine.backends.base import Backend, BackendName
from serving.engine.backends.cpu import CpuBackend
from serving.engine.backends.cuda import CudaBackend
from serving.engine.backends.metal import MetalBackend
from serving.engine.machine import Machine
from serving.errors import LabError, UsageError

BACKENDS: Mapping[BackendName, Backend] = MappingProxyType(
    {
        BackendName.CUDA: CudaBackend(),
        BackendName.METAL: MetalBackend(),
        BackendName.CPU: CpuBackend(),
        BackendName.ATTACH: AttachBackend(),
    }
)

_PREFERENCE = (BackendName.CUDA, BackendName.METAL, BackendName.CPU)


class BackendChoice(BaseModel):
    """A backend and the reason in words: one sentence for the screen and the record."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: BackendName
    reason: str


def select_backend(machine: Machine, asked: BackendName | None = None) -> BackendChoice:
    """Take the backend asked for, or the fastest one this machine can run: CUDA, then Metal, then CPU.

    UsageError when the one asked for cannot run here; LabError when none can.
    """
    if asked is not None:
        availability = BACKENDS[asked].availability(machine)
        if not availability.usable:
            raise UsageError(f"The {asked} backend was asked for and cannot run here: {availability.reason}.")
        return BackendChoice(name=asked, reason=f"{asked}, as asked: {availability.reason}.")
    passed_over: list[str] = []
    for name in _PREFERENCE:
        availability = BACKENDS[name].availability(machine)
        if availability.usable:
            because = "".join(f" Not {entry}." for entry in passed_over)
            return BackendChoice(name=name, reason=f"{name}: {availability.reason}.{because}")
        passed_over.append(f"{name}: {availability.reason}")
    raise LabError(
        f"No engine can run here ({'; '.join(passed_over)}); install one, or attach to a server's URL."
    )
