"""The chat templates that TRL collects, read from its pinned wheel as data."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import PurePosixPath

from pydantic import BaseModel, ConfigDict

from serving.errors import LabError
from serving.models.cache import CachePlace, cache_root
from serving.models.catalogue import ShapeRecipe, load_catalogue
from serving.models.wheels import fetch_wheels
from serving.progress import Progress, Silent

_CARRIER = "qwen3-nano-shape"
"""A catalogue entry whose template comes from the wheel, and which therefore pins it."""


class TemplateCollection(BaseModel):
    """Template sources by name, and where they are from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    origin: str
    sha256: str
    """Of the wheel."""
    sources: Mapping[str, str]


def trl_templates(
    *, environ: Mapping[str, str] | None = None, progress: Progress | None = None
) -> TemplateCollection:
    """Read every `chat_templates/*.jinja` of TRL's wheel, fetched once; raises `LabError` where it cannot be had.

    The collection is TRL's work (Hugging Face, Apache-2.0): the published templates as their authors ship
    them, and its own `*_training` twins.
    """
    environ = os.environ if environ is None else environ
    progress = progress or Silent()
    recipe = load_catalogue()[_CARRIER].recipe
    if not isinstance(recipe, ShapeRecipe):
        raise LabError(f"Expected {_CARRIER} to name the wheel of its template, but it is no shape.")
    wheel = recipe.template
    folder = PurePosixPath(wheel.member).parent
    place = CachePlace(cache_root(environ), f"wheel-{wheel.project}-{wheel.version}")
    with place.locked(progress):
        [path] = fetch_wheels([wheel], cache_root(environ) / "wheels", environ=environ, progress=progress)
        with zipfile.ZipFile(path) as archive:
            names = sorted(n for n in archive.namelist() if PurePosixPath(n).parent == folder)
            sources = {
                PurePosixPath(name).stem: archive.read(name).decode("utf-8")
                for name in names
                if name.endswith(".jinja")
            }
    return TemplateCollection(
        origin=f"PyPI {wheel.requirement}, {folder}", sha256=wheel.sha256, sources=sources
    )
