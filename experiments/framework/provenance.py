"""What made a result: the program with its revision and interpreter, the model, the machine."""

from __future__ import annotations

import platform
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import BaseModel, ConfigDict, JsonValue

from serving.engine.machine import Machine
from serving.models import ModelFolder, ModelSource


class Code(BaseModel):
    """The program's own state; `None` is unknown (an installed copy has no repository)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    revision: str | None
    dirty: bool | None
    """Whether files differed from the revision: such a result cannot be made again from it."""
    version: str | None


class Session(BaseModel):
    """One start of the program on a run folder; a resumed run has several."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    started: str
    code: Code
    python: str
    platform: str
    machine: dict[str, JsonValue] = {}


def this_session(machine: dict[str, JsonValue] | None = None) -> Session:
    """Describe the running program; `machine` is what the caller knows about the hardware."""
    return Session(
        started=utc_now(),
        code=this_code(Path(__file__).resolve().parent),
        python=platform.python_version(),
        platform=platform.platform(),
        machine=machine or {},
    )


def this_code(folder: Path) -> Code:
    """Ask git about the repository that holds `folder`."""
    revision = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--", ":/", ":(exclude,top)results") if revision else None
    try:
        lab = version("ctxlab")
    except PackageNotFoundError:
        lab = None
    return Code(revision=revision or None, dirty=None if changes is None else bool(changes), version=lab)


def model_facts(folder: ModelFolder) -> dict[str, JsonValue]:
    """What a run keeps of its model; no place on this disk."""
    local = folder.source is ModelSource.PATH
    return {
        "model": folder.name,
        "model_origin": "a folder or file of the user's" if local else folder.origin,
        "model_revision": folder.revision,
        "weights": folder.weights.value,
        "weights_sha256": folder.weights_sha256,
    }


def machine_facts(machine: Machine) -> dict[str, JsonValue]:
    """What a run keeps of the machine that computed; memory in GiB."""
    return {
        "processor": machine.cpu_name,
        "cores": len(machine.cores),
        "memory_gib": round(machine.memory_total / 2**30, 1),
    }


def utc_now() -> str:
    """The time as ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _git(folder: Path, *arguments: str) -> str | None:
    program = shutil.which("git")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "-C", str(folder), *arguments], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
