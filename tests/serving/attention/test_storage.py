"""A file gives back what was saved, and a file that is anything else is refused."""

from __future__ import annotations

import dataclasses
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.attention import Capture, CaptureOptions, RowMode, Statistic, load_capture, save
from serving.attention.finish import to_capture
from serving.attention.plan import HeadShape, make_plan
from serving.attention.recorder import Recorder
from serving.errors import LabError
from tests.support.attention import IDENTITY, parts


def made(tokens: int = 37, pieces: bool = True, **options: object) -> Capture:
    segments = parts([i // 6 for i in range(tokens)])
    plan = make_plan(HeadShape(1, 2, 1, 4), segments, CaptureOptions(**options))
    recorder = Recorder(plan)
    random = torch.Generator().manual_seed(tokens)
    query, key = torch.randn(2, tokens, 4, generator=random), torch.randn(1, tokens, 4, generator=random)
    recorder.observe(0, query, key, 1.0)
    texts = [f"«{i}»\n" for i in range(tokens)] if pieces else None
    return to_capture(plan, recorder.finish(), IDENTITY, range(tokens), texts)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("captures") / "one.attention.npz"
    save(made(), path)
    return path


def assert_same(a: Capture, b: Capture) -> None:
    for field in dataclasses.fields(Capture):
        left, right = getattr(a, field.name), getattr(b, field.name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype, field.name
            assert np.array_equal(left, right), field.name
        else:
            assert left == right, field.name


@settings(max_examples=30)
@given(
    tokens=st.integers(1, 60),
    mode=st.sampled_from([RowMode.EVERY, RowMode.POOLED]),
    statistics=st.frozensets(st.sampled_from(Statistic)),
    shuffles=st.integers(0, 2),
    full=st.booleans(),
    pieces=st.booleans(),
)
def test_what_is_read_is_what_was_saved(
    tmp_path_factory: pytest.TempPathFactory,
    tokens: int,
    mode: RowMode,
    statistics: frozenset[Statistic],
    shuffles: int,
    full: bool,
    pieces: bool,
) -> None:
    rows = (0,) if full else ()
    kept = {"full_rows": rows, "keep_rows": rows, "shuffles": shuffles, "heatmap_bins": 9}
    capture = made(tokens, pieces, rows=mode, statistics=statistics, **kept)
    path = tmp_path_factory.mktemp("captures") / "one.attention.npz"
    save(capture, path)
    assert_same(capture, load_capture(path))


def test_equal_captures_give_equal_bytes_and_nothing_else_is_left_in_the_folder(tmp_path: Path) -> None:
    save(made(), tmp_path / "a.npz")
    save(made(), tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "b.npz"]


def test_numpy_reads_the_arrays_without_us(saved: Path) -> None:
    with np.load(saved, allow_pickle=False) as arrays:
        assert np.array_equal(arrays["mass"], made().mass)
        assert arrays["token_ids"].tolist() == list(range(37))


def altered(saved: Path, tmp_path: Path, name: str, content: bytes | None) -> Path:
    """The file with one member replaced or left out."""
    path = tmp_path / "altered.npz"
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.namelist():
            data = content if entry == name else old.read(entry)
            if data is not None:
                new.writestr(entry, data)
    return path


def described(saved: Path, tmp_path: Path, **changes: object) -> Path:
    with zipfile.ZipFile(saved) as archive:
        facts = json.loads(archive.read("capture.json"))
    return altered(saved, tmp_path, "capture.json", json.dumps({**facts, **changes}).encode())


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.npz"
    path.write_text("nothing")
    with pytest.raises(LabError, match="Expected a capture file"):
        load_capture(path)
    with pytest.raises(LabError, match="Expected a capture file"):
        load_capture(tmp_path / "absent.npz")


def test_a_cut_or_damaged_file_is_refused(saved: Path, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    path = tmp_path / "damaged.npz"
    for cut in (10, len(whole) // 2, len(whole) - 5):
        path.write_bytes(whole[:cut])
        with pytest.raises(LabError):
            load_capture(path)
    with zipfile.ZipFile(saved) as archive:
        mass = archive.getinfo("mass.npy")
    place = mass.header_offset + 60
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
    with pytest.raises(LabError):
        load_capture(path)


@pytest.mark.parametrize("member", ["capture.json", "mass.npy", "token_ids.npy", "entropy.npy"])
def test_a_missing_part_is_named(saved: Path, tmp_path: Path, member: str) -> None:
    with pytest.raises(LabError, match=member.removesuffix(".npy")):
        load_capture(altered(saved, tmp_path, member, None))


def test_a_later_version_is_refused_with_what_to_do(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="version 2; open it with the release that wrote it"):
        load_capture(described(saved, tmp_path, version=2))


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": [0, 1]},
        {"rows": 10**12},
        {"rows": 1},
        {"heads": list(range(10**5))},
        {"arrays": ["mass"]},
        {"arrays": ["mass", "sink", "between", "row_starts", "row_ends", "rows_in", "evil"]},
        {"surprise": 1},
    ],
)
def test_a_description_that_does_not_fit_the_arrays_is_refused(
    saved: Path, tmp_path: Path, changes: dict[str, object]
) -> None:
    with pytest.raises(LabError):
        load_capture(described(saved, tmp_path, **changes))


def test_an_array_of_objects_is_never_unpacked(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "pickled.npy"
    np.save(path, np.array([{"a": 1}] * 10, dtype=object), allow_pickle=True)
    with pytest.raises(LabError, match="mass"):
        load_capture(altered(saved, tmp_path, "mass.npy", path.read_bytes()))


def test_a_member_that_unpacks_to_more_than_described_is_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="bytes of sink"):
        load_capture(altered(saved, tmp_path, "sink.npy", bytes(1 << 24)))
