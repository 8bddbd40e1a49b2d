"""Models: the catalogue, getting them, and the folder that an engine serves."""

from __future__ import annotations

from serving.models.cache import cache_root
from serving.models.catalogue import CatalogueEntry, load_catalogue
from serving.models.choose import ModelChoice, choose
from serving.models.folder import ModelFolder, ModelSource, Weights
from serving.models.listing import ModelListing, describe, list_models
from serving.models.pull import ensure, on_disk, remove, verify
from serving.models.reasoning import reasons

__all__ = [
    "CatalogueEntry",
    "ModelChoice",
    "ModelFolder",
    "ModelListing",
    "ModelSource",
    "Weights",
    "cache_root",
    "choose",
    "describe",
    "ensure",
    "list_models",
    "load_catalogue",
    "on_disk",
    "reasons",
    "remove",
    "verify",
]
