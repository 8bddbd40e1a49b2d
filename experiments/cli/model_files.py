"""The files of a model by its name: those that a command needs, or those that happen to be here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serving.models import ModelFolder
    from serving.progress import Progress


def files_here(name: str) -> ModelFolder | None:
    """What is on this disk of a model, under a name that a server or a record gives it: it may be anything."""
    from serving.errors import UsageError
    from serving.models import on_disk

    try:
        return on_disk(name)
    except (UsageError, OSError):  # no name that the cache could hold
        return None


def template_folder(model: str, progress: Progress | None = None) -> Path:
    """The folder of a model's template and tokenizer, which may hold no weights; pulled if it is not on this disk.

    Raises `UsageError` for what is no model, and `LabError` for one that cannot be had.
    """
    from serving.models import ensure, on_disk

    if Path(model).is_dir():
        return Path(model)
    here = on_disk(model)
    return (ensure(model, progress=progress) if here is None else here).path
