"""The tools that change files inside a root: whole files, atomically, up to a limit.

A file is written beside its place under a name of its own and moved there, by directory handle: a reader sees
the old text or the new one, a link is replaced and never written through, and a hard link's other name keeps
its text.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from typing import Final

from pydantic import Field

from experiments.agent.tools.definitions import Arguments
from experiments.agent.tools.folder import (
    SKIPPED_DIRECTORIES,
    EntryKind,
    entry_of,
    parts_of,
    require,
    shown_name,
)
from experiments.agent.tools.outcome import Failure, Reply, ToolError
from experiments.agent.tools.tool import Postcondition, Tool, tool
from experiments.agent.tools.workspace import Workspace
from serving.assembler import Authority

MAX_WRITTEN_BYTES: Final = 2**20
"""Of one file."""
MAX_RUN_BYTES: Final = 64 * 2**20
"""Of all calls of one run, whatever they replaced."""
MAX_RUN_FILES: Final = 1_000
"""Written in one run, and as many folders made."""


class WriteFile(Arguments):
    """A file and its whole text."""

    path: str
    text: str


class AppendFile(Arguments):
    """A file and what comes to its end."""

    path: str
    text: str = Field(min_length=1)


class ReplaceInFile(Arguments):
    """A file, a text that stands in it exactly once, and what stands there afterwards."""

    path: str
    old: str = Field(min_length=1)
    new: str


class FileChanges:
    """What one run has changed in its workspace, and may still change."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._bytes = MAX_RUN_BYTES
        self._files = MAX_RUN_FILES

    def write(self, change: WriteFile) -> Reply:
        """Write a whole file; folders that are missing are made."""
        self._put(change.path, _encoded(change.text), make_folders=True)
        return self._said(change.path, "written")

    def wrote(self, change: WriteFile) -> bool:
        """Whether the file holds the text and nothing else."""
        return self._now(change.path) == _encoded(change.text)

    def append(self, change: AppendFile) -> Reply:
        """Write a file that exists anew, with a text at its end."""
        self._put(change.path, self._now(change.path) + _encoded(change.text))
        return self._said(change.path, "extended")

    def appended(self, change: AppendFile) -> bool:
        """Whether the file ends with the text."""
        return self._now(change.path).endswith(_encoded(change.text))

    def replace(self, change: ReplaceInFile) -> Reply:
        """Write a file anew with one text exchanged; a text that occurs not once is refused."""
        before, old = self._now(change.path), _encoded(change.old)
        if (times := before.count(old)) != 1:
            raise ToolError(
                f"`old` must occur exactly once in {change.path!r}, and occurs {times} times; read the file "
                "and give more of it, or less.",
                Failure.REFUSED if times else Failure.NOT_FOUND,
            )
        self._put(change.path, before.replace(old, _encoded(change.new)))
        return self._said(change.path, "changed")

    def replaced(self, change: ReplaceInFile) -> bool:
        """Whether the new text stands in the file."""
        return _encoded(change.new) in self._now(change.path)

    def _now(self, path: str) -> bytes:
        return self._workspace.folder().read_bytes(path)

    def _said(self, path: str, done: str) -> Reply:
        size = self._workspace.folder().entry(path).size
        return Reply(f"{shown_name(path)} {done}: {size:,} bytes.", {"path": path, "size_bytes": size})

    def _put(self, path: str, data: bytes, *, make_folders: bool = False) -> None:
        parts = parts_of(path)
        if not parts:
            raise ToolError(f"{path!r} is a folder; give a path of a file.")
        self._require_allowed((*self._workspace.cwd.split("/"), *parts), path)
        if len(data) > min(MAX_WRITTEN_BYTES, self._bytes) or self._files < len(parts):
            raise ToolError(
                f"A file has at most {MAX_WRITTEN_BYTES:,} bytes, and this run may write {self._bytes:,} more bytes "
                f"and make {self._files:,} more files or folders; {path!r} would have {len(data):,} bytes.",
                Failure.LIMIT,
            )
        self._bytes -= len(data)
        self._files -= len(parts) if make_folders else 1
        folder = self._workspace.folder()
        if make_folders:
            for depth, name in enumerate(parts[:-1]):
                with folder.directory(parts[:depth], path) as handle, _words(path):
                    _make_folder(name, handle)
        with folder.directory(parts[:-1], path) as handle, _words(path):
            _swap_in(parts[-1], handle, path, data)

    def _require_allowed(self, parts: tuple[str, ...], path: str) -> None:
        """A file in `.git` can run when somebody uses git, and one in `.venv` when somebody runs Python."""
        if made := {name.casefold() for name in parts} & SKIPPED_DIRECTORIES:
            raise ToolError(
                f"{path!r} lies in {min(made)!r}, which tools do not change; choose another place."
            )


def change_tools(workspace: Workspace) -> tuple[Tool, ...]:
    """The three tools that change files of a workspace, with one limit for all of them."""
    changes = FileChanges(workspace)
    failures = (Failure.REFUSED, Failure.NOT_FOUND, Failure.LIMIT, Failure.POSTCONDITION)
    return (
        tool(
            "write_file",
            "Write a whole file.",
            WriteFile,
            changes.write,
            authority=Authority.WRITE,
            effect="The file has the text, whatever it had before; missing folders are made.",
            failures=failures,
            ensures=Postcondition("the file holds the text and nothing else", changes.wrote),
            alone=workspace.changing,
        ),
        tool(
            "append_file",
            "Add text to the end of a file.",
            AppendFile,
            changes.append,
            authority=Authority.WRITE,
            effect="The file has the text at its end.",
            preconditions=("the file exists",),
            idempotent=False,
            failures=failures,
            ensures=Postcondition("the file ends with the text", changes.appended),
            alone=workspace.changing,
        ),
        tool(
            "replace_in_file",
            "Replace text that occurs exactly once in a file.",
            ReplaceInFile,
            changes.replace,
            authority=Authority.WRITE,
            effect="`new` stands where `old` stood.",
            preconditions=("the file exists", "`old` occurs in it exactly once"),
            idempotent=False,
            failures=failures,
            ensures=Postcondition("the new text stands in the file", changes.replaced),
            alone=workspace.changing,
        ),
    )


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(
            "The text is no Unicode that a file can hold; leave half surrogate pairs out."
        ) from error


@contextlib.contextmanager
def _words(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ToolError(
            f"{path!r} cannot be written: {error.strerror or type(error).__name__}; choose another path."
        ) from error
    except ValueError as error:  # a name that the file system cannot spell
        raise ToolError(f"{path!r} is no usable path; give a plain path.") from error


def _make_folder(name: str, directory: int) -> None:
    with contextlib.suppress(FileExistsError):  # what it is shows when it is opened
        os.mkdir(name, 0o755, dir_fd=directory)


def _swap_in(name: str, directory: int, path: str, data: bytes) -> None:
    """Put a file in the place of another, or of none; what is no file is not replaced."""
    mode = None
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        pass
    else:
        require(entry_of(name, name, directory, path), EntryKind.FILE, path)
        mode = stat.S_IMODE(found.st_mode) & 0o777
    beside = f".{secrets.token_hex(8)}.part"
    handle = os.open(
        beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=directory
    )
    try:
        with os.fdopen(handle, "wb") as file:
            if mode is not None:
                os.fchmod(handle, mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(beside, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        os.unlink(beside, dir_fd=directory)
        raise
