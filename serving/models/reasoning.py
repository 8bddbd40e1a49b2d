"""Whether a model that is not on this disk yet reasons in the API's sense."""

from __future__ import annotations

from pathlib import Path

from serving.models.catalogue import load_catalogue
from serving.models.local import read_facts


def reasons(model: str) -> bool:
    """Whether a model's reasoning can be told: by the catalogue, else by the folder, never by what was pulled.

    A plan must not change between a run and its resumption, so a hub id that nobody described counts as one that
    does not reason.
    """
    entry = load_catalogue().get(model)
    if entry is not None:
        return entry.reasoning_parser is not None
    folder = Path(model).expanduser()
    return folder.is_dir() and read_facts(folder).reasoning_parser is not None
