from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from experiments.framework.journal import Journal
from experiments.framework.manifests import MANIFESTS, ManifestJournal, read_manifests
from serving.assembler import (
    AssemblyRequest,
    ContextItem,
    ContextManifest,
    ContextPolicy,
    FixedCounter,
    Instruction,
    Packet,
    RequestContext,
    assemble,
)
from serving.errors import LabError


def manifest(step: str) -> ContextManifest:
    request = AssemblyRequest(
        context=RequestContext(tenant="t", actor="a", now=datetime(2026, 1, 1, tzinfo=UTC)),
        candidates=(ContextItem(id="system", payload=Instruction(text="Be brief.")),),
        window=100,
        max_output=1,
        step_id=step,
    )
    packet = assemble(request, ContextPolicy(), FixedCounter({"system": 5}))
    assert isinstance(packet, Packet)
    return packet.manifest


def keep(folder: Path, *manifests: ContextManifest) -> None:
    with Journal(folder / MANIFESTS) as journal:
        ManifestJournal(journal).keep(manifests)


def test_what_is_kept_is_read_back_whole_and_in_order(tmp_path: Path) -> None:
    made = [manifest(str(step)) for step in range(5)]
    keep(tmp_path, *made)
    assert list(read_manifests(tmp_path)) == made


def test_a_manifest_is_kept_once_however_often_it_comes(tmp_path: Path) -> None:
    keep(tmp_path, manifest("1"), manifest("1"))
    keep(tmp_path, manifest("1"), manifest("2"))
    assert [found.step_id for found in read_manifests(tmp_path)] == ["1", "2"]


def test_a_folder_without_manifests_has_none(tmp_path: Path) -> None:
    assert list(read_manifests(tmp_path)) == []


def test_a_changed_manifest_is_told_by_its_id(tmp_path: Path) -> None:
    keep(tmp_path, manifest("1"), manifest("2"), manifest("3"))
    path = tmp_path / MANIFESTS
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["zlib"], lines[2]["zlib"] = lines[2]["zlib"], lines[1]["zlib"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(LabError, match="it was changed"):
        list(read_manifests(tmp_path))


def test_manifests_without_the_first_are_not_read_as_something_else(tmp_path: Path) -> None:
    keep(tmp_path, manifest("1"), manifest("2"))
    path = tmp_path / MANIFESTS
    path.write_text(path.read_text().splitlines(keepends=True)[1])
    with pytest.raises(LabError, match=r"manifests\.jsonl holds no manifest under"):
        list(read_manifests(tmp_path))


@pytest.mark.parametrize(
    "line", ['{"id": "x", "zlib": "%%%"}', '{"id": "x", "zlib": "aGVsbG8="}', '{"id": 3}']
)
def test_a_broken_line_is_one_sentence(tmp_path: Path, line: str) -> None:
    (tmp_path / MANIFESTS).write_text(line + "\n")
    with pytest.raises(LabError, match=r"manifests\.jsonl"):
        list(read_manifests(tmp_path))
