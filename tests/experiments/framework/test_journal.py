from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.framework.journal import Journal, read_lines, write_whole
from serving.errors import LabError


def test_what_was_appended_is_read_back_across_reopenings(tmp_path: Path) -> None:
    for number in range(3):
        with Journal(tmp_path / "j") as journal:
            journal.append({"n": number})
    assert list(read_lines(tmp_path / "j")) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_lone_surrogate_from_a_server_survives(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.append({"text": "a\ud800\u2028b\n"})
    assert list(read_lines(tmp_path / "j")) == [{"text": "a\ud800\u2028b\n"}]
    assert (tmp_path / "j").read_bytes().count(b"\n") == 1


@given(st.integers(0, 60), st.booleans())
def test_a_file_cut_anywhere_keeps_every_whole_line(
    tmp_path_factory: pytest.TempPathFactory, cut: int, go_on: bool
) -> None:
    path = tmp_path_factory.mktemp("cut") / "j"
    lines = [json.dumps({"n": n, "text": "x" * n}).encode() + b"\n" for n in range(3)]
    whole = b"".join(lines)
    path.write_bytes(whole[:cut])
    kept = [line for n, line in enumerate(lines) if cut >= len(b"".join(lines[: n + 1]))]
    assert list(read_lines(path)) == [
        json.loads(line) for line in kept
    ]  # a reader beside the writer sees the same
    with Journal(path) as journal:
        assert path.read_bytes() == b"".join(kept)
        if go_on:
            journal.append({"after": True})
    assert list(read_lines(path))[len(kept) :] == ([{"after": True}] if go_on else [])


def test_a_tail_of_zeros_after_a_power_cut_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "j").write_bytes(b'{"n":0}\n' + bytes(20) + b"\n")
    with Journal(tmp_path / "j"):
        pass
    assert (tmp_path / "j").read_bytes() == b'{"n":0}\n'


def test_a_broken_line_in_the_middle_is_reported_with_its_number_and_not_touched(tmp_path: Path) -> None:
    content = b'{"n":0}\n{"n":\n{"n":2}\n'
    (tmp_path / "j").write_bytes(content)
    with Journal(tmp_path / "j"), pytest.raises(LabError, match="Line 2"):
        list(read_lines(tmp_path / "j"))
    assert (tmp_path / "j").read_bytes() == content


def test_a_disk_that_fills_up_in_the_middle_of_a_line_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(tmp_path / "j") as journal:
        journal.append({"n": 0})
        before = (tmp_path / "j").read_bytes()
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, hard))
        try:
            with pytest.raises(LabError, match="make room and run the same command again"):
                journal.append({"text": "x" * 100})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert (tmp_path / "j").read_bytes() == before
        journal.append({"n": 1})
    assert list(read_lines(tmp_path / "j")) == [{"n": 0}, {"n": 1}]


def test_a_torn_line_that_cannot_even_be_cut_back_is_cut_on_the_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.append({"n": 0})
        with monkeypatch.context() as broken:
            broken.setattr(os, "write", _half_then_full(os.write))
            broken.setattr(os, "ftruncate", _refuse)
            with pytest.raises(LabError, match="No space"):
                journal.append({"text": "x" * 100})
        assert not (tmp_path / "j").read_bytes().endswith(b"\n")
    with Journal(tmp_path / "j") as journal:
        journal.append({"n": 1})
    assert list(read_lines(tmp_path / "j")) == [{"n": 0}, {"n": 1}]


def test_a_number_that_json_lacks_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal, pytest.raises(ValueError, match="JSON"):
        journal.append({"n": float("nan")})
    assert (tmp_path / "j").read_bytes() == b""


def test_replacing_a_file_leaves_no_draft(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", b"1")
    write_whole(tmp_path / "a", b"2")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"2"


def _half_then_full(write: Callable[[int, bytes], int]) -> Callable[[int, bytes], int]:
    calls = iter([True])

    def fake(descriptor: int, data: bytes) -> int:
        if next(calls, False):
            return write(descriptor, data[: len(data) // 2])
        return _refuse()

    return fake


def _refuse(*_: object) -> int:
    raise OSError(28, "No space left on device")
