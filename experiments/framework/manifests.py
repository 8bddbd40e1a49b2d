"""The manifest behind every call of a run, under the id that its exchange names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import JsonValue

from experiments.framework.journal import Journal, read_lines
from experiments.framework.packed import pack, unpack
from serving.assembler import ContextManifest
from serving.errors import LabError

MANIFESTS = "manifests.jsonl"


class ManifestJournal:
    """Appends manifests that are not there yet.

    A line is an id and the manifest's JSON, packed: manifests repeat their words, and a run keeps hundreds of them.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known = {manifest_id for manifest_id, _ in _entries(journal.path)}

    def keep(self, manifests: Iterable[ContextManifest]) -> None:
        """Write each manifest once; `LabError` when the disk refuses."""
        for manifest in manifests:
            if manifest.manifest_id not in self._known:
                self._journal.append({"id": manifest.manifest_id, "zlib": pack(manifest.model_dump_json())})
                self._known.add(manifest.manifest_id)


def read_manifests(folder: Path) -> Iterator[ContextManifest]:
    """Yield every manifest of a run folder; `LabError` for one that is not what its id says."""
    for manifest_id, packed in _entries(folder / MANIFESTS):
        try:
            manifest = ContextManifest.model_validate_json(unpack(packed))
        except ValueError as error:
            raise LabError(f"{folder / MANIFESTS} holds no manifest under {manifest_id}: {error}.") from error
        if manifest.manifest_id != manifest_id:
            raise LabError(
                f"{folder / MANIFESTS} holds {manifest.manifest_id} under the id {manifest_id}: it was changed."
            )
        yield manifest


def _entries(path: Path) -> Iterator[tuple[str, str]]:
    for line in read_lines(path):
        yield _entry(path, line)


def _entry(path: Path, line: JsonValue) -> tuple[str, str]:
    match line:
        case {"id": str(manifest_id), "zlib": str(packed)}:
            return manifest_id, packed
        case _:
            raise LabError(f"{path} has a line that is not a manifest: {line!r:.200}.")
