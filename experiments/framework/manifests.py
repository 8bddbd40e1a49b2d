"""The manifest behind every call of a run, under the id that its exchange names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import JsonValue

from experiments.framework.journal import Journal, read_lines
from experiments.framework.packed import Packing
from serving.assembler import ContextManifest
from serving.errors import LabError

MANIFESTS = "manifests.jsonl"


class ManifestJournal:
    """Appends manifests that are not there yet.

    A line is an id and the manifest's JSON, packed: manifests repeat their words, and a run keeps hundreds of them.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._packing = Packing()
        self._known: set[str] = set()
        for manifest_id, packed in _entries(journal.path):
            if not self._known:
                _unpacked(journal.path, self._packing, manifest_id, packed)
            self._known.add(manifest_id)

    def keep(self, manifests: Iterable[ContextManifest]) -> None:
        """Write each manifest once; `LabError` when the disk refuses."""
        for manifest in manifests:
            if manifest.manifest_id not in self._known:
                text = manifest.model_dump_json()
                self._journal.append({"id": manifest.manifest_id, "zlib": self._packing.pack(text)})
                self._packing.stands(text)
                self._known.add(manifest.manifest_id)


def read_manifests(folder: Path) -> Iterator[ContextManifest]:
    """Yield every manifest of a run folder; `LabError` for one that is not what its id says."""
    packing = Packing()
    for manifest_id, packed in _entries(folder / MANIFESTS):
        text = _unpacked(folder / MANIFESTS, packing, manifest_id, packed)
        try:
            manifest = ContextManifest.model_validate_json(text)
        except ValueError as error:
            raise _no_manifest(folder / MANIFESTS, manifest_id, error) from error
        if manifest.manifest_id != manifest_id:
            raise LabError(
                f"{folder / MANIFESTS} holds {manifest.manifest_id} under the id {manifest_id}: it was changed."
            )
        yield manifest


def _unpacked(path: Path, packing: Packing, manifest_id: str, packed: str) -> str:
    try:
        return packing.unpack(packed)
    except ValueError as error:
        raise _no_manifest(path, manifest_id, error) from error


def _no_manifest(path: Path, manifest_id: str, error: ValueError) -> LabError:
    return LabError(f"{path} holds no manifest under {manifest_id}: {error}.")


def _entries(path: Path) -> Iterator[tuple[str, str]]:
    for line in read_lines(path):
        yield _entry(path, line)


def _entry(path: Path, line: JsonValue) -> tuple[str, str]:
    match line:
        case {"id": str(manifest_id), "zlib": str(packed)}:
            return manifest_id, packed
        case _:
            raise LabError(f"{path} has a line that is not a manifest: {line!r:.200}.")
