"""A folder that is never left, and here only read (`changes.py` changes it).

Every path is walked from the root one name at a time, by directory handle, without following links. So there
is nothing to resolve, and no moment between a check and its use in which a link could be swapped in.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Final

from experiments.agent.tools.outcome import Failure, ToolError
from serving.errors import UsageError

MAX_FILE_BYTES: Final = 4 * 2**20
MAX_DIRECTORY_ENTRIES: Final = 10_000
MAX_DEPTH: Final = 40
SKIPPED_DIRECTORIES: Final = frozenset({".git", ".venv", "__pycache__", "node_modules"})
"""Not walked into: their contents are made by tools, and drown what people wrote."""

READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class EntryKind(StrEnum):
    """What a name in a folder is."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    SPECIAL = "special file"


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One name in a folder; `path` is relative to the root, with `/`, empty for the root."""

    path: str
    kind: EntryKind
    size: int
    """Bytes, 0 for what is no file."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Folder:
    """The root of the tools. Raises `UsageError` when it is no folder; every method raises `ToolError`."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise UsageError(f"Expected a folder for the tools, got {root}: give an existing folder.")
        self._root = root.resolve()

        self._base: tuple[str, ...] = ()

    def inside(self, path: str) -> Folder:
        """A folder below this one as a root of its own: every path is then relative to it."""
        parts = parts_of(path)
        with self.directory(parts, path):
            pass  # it is a folder, and no link leads there
        below = copy(self)
        below._base = (*self._base, *parts)
        return below

    def entry(self, path: str) -> Entry:
        """What `path` is. A link is told as a link, and never followed."""
        parts = parts_of(path)
        if not parts:
            return Entry("", EntryKind.FOLDER, 0)
        with self.directory(parts[:-1], path) as handle:
            return entry_of("/".join(parts), parts[-1], handle, path)

    def read(self, path: str) -> str:
        """A text file; bytes that are no UTF-8 come as U+FFFD, `\\r\\n` as `\\n`."""
        data = self.read_bytes(path)
        if b"\0" in data:
            raise ToolError(f"{path!r} is a binary file of {len(data):,} bytes, so it is not read.")
        return data.decode("utf-8", "replace").replace("\r\n", "\n")

    def read_bytes(self, path: str) -> bytes:
        """The whole of a regular file of at most `MAX_FILE_BYTES`."""
        parts = parts_of(path)
        if not parts:
            raise ToolError(f"{path!r} is a folder; use list_dir.")
        with self.directory(parts[:-1], path) as handle:
            found = entry_of("/".join(parts), parts[-1], handle, path)
            require(found, EntryKind.FILE, path)
            # The kind is looked at twice: before opening, for opening a device can do something, and after,
            # for the name may mean another file by then.
            with opened(parts[-1], handle, path) as file:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise ToolError(f"{path!r} is no regular file, so it is not read.")
                data = _read_bounded(file)
        if len(data) > MAX_FILE_BYTES:
            raise ToolError(f"{path!r} has more than {MAX_FILE_BYTES:,} bytes, so it is not read.")
        return data

    def children(self, path: str) -> list[Entry]:
        """The names in a folder, sorted by code point."""
        parts = parts_of(path)
        with self.directory(parts, path) as handle:
            try:
                with os.scandir(handle) as listing:
                    names = [item.name for item in islice(listing, MAX_DIRECTORY_ENTRIES + 1)]
            except OSError as error:
                raise failure_of(path, error) from error
            if len(names) > MAX_DIRECTORY_ENTRIES:
                # A part of it would depend on the disk's order.
                raise ToolError(f"{path!r} has more than {MAX_DIRECTORY_ENTRIES:,} entries: not listed.")
            found = []
            for name in sorted(names):
                try:
                    found.append(entry_of("/".join((*parts, name)), name, handle, name))
                except ToolError:
                    continue  # removed since it was listed
            return found

    def walk(self, path: str = ".") -> Iterator[Entry]:
        """Every entry below a folder in a fixed order, depth first; a folder that cannot be read is empty."""
        yield from self._below(self.children(path), len(parts_of(path)))

    def _below(self, entries: list[Entry], depth: int) -> Iterator[Entry]:
        for found in entries:
            yield found
            if found.kind is not EntryKind.FOLDER or found.name in SKIPPED_DIRECTORIES or depth >= MAX_DEPTH:
                continue
            try:
                below = self.children(found.path)
            except ToolError:
                continue
            yield from self._below(below, depth + 1)

    @contextmanager
    def directory(self, parts: tuple[str, ...], asked: str) -> Iterator[int]:
        """An open handle of a folder; `asked` is the path that errors name."""
        try:
            handle = os.open(self._root, READ_FLAGS | os.O_DIRECTORY)
        except OSError as error:
            raise failure_of(asked, error) from error
        try:
            for depth, part in enumerate(whole := (*self._base, *parts)):
                here = "/".join(whole[len(self._base) : depth + 1]) or part
                require(entry_of(here, part, handle, asked), EntryKind.FOLDER, here)
                try:
                    below = os.open(part, READ_FLAGS | os.O_DIRECTORY, dir_fd=handle)
                except OSError as error:
                    raise failure_of(asked, error) from error
                os.close(handle)
                handle = below
            yield handle
        finally:
            os.close(handle)


def shown_name(path: str) -> str:
    """A path that a model can read: control characters and undecodable bytes as escapes."""
    text = path.encode("utf-8", "backslashreplace").decode()
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def parts_of(path: str) -> tuple[str, ...]:
    """The names on the way from the root; every form that could lead out of it is refused in words."""
    if path.startswith(("/", "~")):
        raise ToolError(
            f"{path!r} is no path inside the folder; give one relative to it, such as 'README.md'."
        )
    if "\0" in path:
        raise ToolError("A path holds no NUL character; give a plain path.")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise ToolError(f"{path!r} leads out with '..'; give a path relative to the folder without it.")
    if len(parts) > MAX_DEPTH:
        raise ToolError(f"A path has at most {MAX_DEPTH} names, but this one has {len(parts)}.")
    return parts


def entry_of(path: str, name: str, directory: int, asked: str) -> Entry:
    """What `name` in an open directory is, links not followed; `ToolError` about `asked` where it cannot be told."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        raise failure_of(asked, error) from error
    except ValueError as error:  # a name that the file system cannot spell
        raise ToolError(f"{asked!r} is no usable path; give a plain path.") from error
    if stat.S_ISREG(status.st_mode):
        return Entry(path, EntryKind.FILE, status.st_size)
    if stat.S_ISDIR(status.st_mode):
        return Entry(path, EntryKind.FOLDER, 0)
    return Entry(path, EntryKind.LINK if stat.S_ISLNK(status.st_mode) else EntryKind.SPECIAL, 0)


def require(found: Entry, kind: EntryKind, asked: str) -> None:
    """Raise `ToolError` where an entry is of another kind."""
    if found.kind is not kind:
        hint = "; links are not followed" if found.kind is EntryKind.LINK else ""
        raise ToolError(f"{asked!r} is a {found.kind.value}, not a {kind.value}{hint}.")


@contextmanager
def opened(name: str, directory: int, asked: str) -> Iterator[int]:
    """A descriptor to read from; `ToolError` about `asked` for what the system refuses then or while it is read."""
    try:
        handle = os.open(name, READ_FLAGS, dir_fd=directory)
    except OSError as error:
        raise failure_of(asked, error) from error
    try:
        yield handle
    except OSError as error:
        raise failure_of(asked, error) from error
    finally:
        os.close(handle)


def _read_bounded(handle: int) -> bytes:
    """At most one byte more than allowed, whatever the size claims: files grow, and some claim none."""
    pieces: list[bytes] = []
    left = MAX_FILE_BYTES + 1
    while left and (piece := os.read(handle, left)):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def failure_of(asked: str, error: OSError) -> ToolError:
    """The refusal of the system in words for the model."""
    if isinstance(error, FileNotFoundError):
        return ToolError(f"{asked!r} does not exist; look with list_dir or find_files.", Failure.NOT_FOUND)
    return ToolError(f"{asked!r} cannot be read: {error.strerror or type(error).__name__}.")
