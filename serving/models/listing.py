"""What `ctxlab models list` and `show` print, as data."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from serving.errors import UsageError
from serving.models.cache import cache_root
from serving.models.catalogue import CatalogueEntry, load_catalogue
from serving.models.folder import ModelFolder, ModelSource, Weights, read_record
from serving.models.pull import on_disk


class ModelListing(BaseModel):
    """One model that can be had or is here."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    summary: str | None
    license: str | None
    source: ModelSource
    origin: str
    weights: Weights
    download_bytes: int | None
    """`None`: pulled by hub id or from a file, so the catalogue cannot say."""
    disk_bytes: int
    """What the folder takes when it is here, else what it will take, about."""
    folder: ModelFolder | None
    """`None`: not on this disk."""


def list_models(*, cache: Path | None = None) -> tuple[ModelListing, ...]:
    """The catalogue in its order, then the other models on this disk by name."""
    root = cache if cache is not None else cache_root()
    catalogue = load_catalogue()
    known = [_catalogued(entry, root) for entry in catalogue.values()]
    folders = sorted((root / "models").glob("*")) if (root / "models").is_dir() else []
    records = [record for folder in folders if (record := read_record(folder)) is not None]
    return (*known, *(_other(record) for record in records if record.name not in catalogue))


def describe(name: str, *, cache: Path | None = None) -> ModelListing:
    """One model by catalogue name, or by hub id when it is on this disk; raises `UsageError` otherwise."""
    root = cache if cache is not None else cache_root()
    if (entry := load_catalogue().get(name)) is not None:
        return _catalogued(entry, root)
    for listing in list_models(cache=root):
        if listing.name == name:
            return listing
    raise UsageError(
        f"Expected a model of the catalogue or on this disk, but {name!r} is neither; "
        "see `ctxlab models list`."
    )


def _catalogued(entry: CatalogueEntry, root: Path) -> ModelListing:
    folder = on_disk(entry.name, cache=root)
    return ModelListing(
        name=entry.name,
        summary=entry.summary,
        license=entry.license,
        source=entry.source,
        origin=entry.origin,
        weights=entry.weights,
        download_bytes=entry.download_bytes,
        disk_bytes=entry.disk_bytes if folder is None else folder.size_bytes,
        folder=folder,
    )


def _other(folder: ModelFolder) -> ModelListing:
    return ModelListing(
        name=folder.name,
        summary=None,
        license=folder.license,
        source=folder.source,
        origin=folder.origin,
        weights=folder.weights,
        download_bytes=None,
        disk_bytes=folder.size_bytes,
        folder=folder,
    )
