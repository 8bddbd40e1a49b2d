"""An append-only file of JSON lines that survives a kill, a torn line and a full disk."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from pydantic import JsonValue

from serving.errors import LabError


class Journal:
    """Appends one JSON object a line; a line is on the disk, whole, when `append` returns.

    Opening cuts a torn last line off (a process killed while it wrote). The caller holds the lock.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        whole = _whole_bytes(path)
        if whole < path.stat().st_size:
            os.ftruncate(self._descriptor, whole)
            os.fsync(self._descriptor)
        sync_folder(path.parent)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A thread that comes late must fail: the number may soon belong to another file.
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)

    def append(self, value: JsonValue) -> None:
        """Write one line and wait for the disk.

        Raises `LabError` when the disk refuses (full, quota); the file then ends where it did before.
        """
        data = _encode(value)
        before = os.fstat(self._descriptor).st_size
        written = 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
            os.fsync(self._descriptor)
        except OSError as error:
            self._cut_back(before)
            raise LabError(
                f"Could not write {len(data)} bytes to {self.path}: {error.strerror}. Everything before them "
                "is kept; make room and run the same command again."
            ) from error

    def _cut_back(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError:
            return  # the torn line stays and the next opening cuts it off


def read_lines(path: Path) -> Iterator[JsonValue]:
    """Yield the whole lines of a journal that may still be written to; a torn last one is left out.

    Raises `LabError` with the line number for a broken line that is not the last: a kill cannot do that.
    """
    pending: tuple[int, bytes] | None = None
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if pending is not None:
                yield _decode(path, *pending)
            pending = (number, line)
    if pending is not None and _is_whole(pending[1]):
        yield _decode(path, *pending)


def write_whole(path: Path, data: bytes) -> None:
    """Replace a small file so that a reader sees the old or the new one, never half of it."""
    draft = path.with_name(f"{path.name}.tmp")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Put a folder's entries on the disk, so that a new file is still there after a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _encode(value: JsonValue) -> bytes:
    # ASCII escapes carry lone surrogates, which servers do send and UTF-8 cannot.
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


def _decode(path: Path, number: int, line: bytes) -> JsonValue:
    try:
        value: JsonValue = json.loads(line)
    except ValueError as error:
        raise LabError(
            f"Line {number} of {path} is not JSON ({error}); a kill tears only the last line, so something "
            "else changed this file. Restore it or start a new folder."
        ) from error
    return value


def _is_whole(line: bytes) -> bool:
    if not line.endswith(b"\n"):
        return False
    try:
        json.loads(line)
    except ValueError:
        return False  # after a power cut a tail can be the right length and all zeros
    return True


def _whole_bytes(path: Path) -> int:
    end = last = 0
    tail = b""
    with path.open("rb") as file:
        for line in file:
            last, end, tail = end, end + len(line), line
    return end if not tail or _is_whole(tail) else last
