"""A log on disk: its lines in order, and any earlier line again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

from serving.errors import UsageError

LONGEST_LINE = 64 << 20
"""Bytes of the longest line that is read; a log without line breaks must not fill the memory."""


class RawLine(NamedTuple):
    """A line and where it is."""

    number: int
    offset: int
    data: bytes
    """Without its line break; cut after `LONGEST_LINE` bytes."""
    whole: bool
    """False for a line that was cut."""


class LogReader:
    """A log file, open for two passes at once: forward, and back to lines that are quoted."""

    def __init__(self, path: Path, *, longest_line: int = LONGEST_LINE) -> None:
        """Raises: UsageError for what is no regular file."""
        if not path.is_file():
            what = "a pipe or device" if path.exists() and not path.is_dir() else "none"
            raise UsageError(
                f"Expected a log file at {path}, found {what}: earlier lines are read again, so save the log in a "
                "file first."
            )
        self.path = path
        self.size = path.stat().st_size
        self._longest = longest_line
        self._again: BinaryIO = path.open("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._again.close()

    def __iter__(self) -> Iterator[RawLine]:
        """Every line that is not blank, in order; numbers count blank ones too."""
        with self.path.open("rb") as file:
            offset = 0
            number = 0
            while data := file.readline(self._longest + 1):
                number += 1
                length, whole = len(data), True
                if length > self._longest and not data.endswith(b"\n"):
                    whole = False
                    while rest := file.readline(self._longest):
                        length += len(rest)
                        if rest.endswith(b"\n"):
                            break
                if data.strip():
                    yield RawLine(number, offset, data.rstrip(b"\r\n"), whole)
                offset += length

    def line_at(self, offset: int) -> bytes:
        """The line that begins at a byte."""
        self._again.seek(offset)
        return self._again.readline().rstrip(b"\r\n")
