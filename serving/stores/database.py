"""One SQLite file of a known kind, safe between processes and across kills."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from serving.errors import LabError

_BUSY_SECONDS: Final = 30.0


class Database:
    """A file with one schema; every transaction has a connection of its own, so threads and forks are safe.

    `application_id` marks the file as this store's own (SQLite's header field): a memory store never opens an
    event queue, nor a file of another schema.
    """

    def __init__(self, path: Path, schema: str, *, application_id: int) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _make_private(path)
        except OSError as error:
            raise LabError(
                f"Expected a database at {path}, but it cannot be opened ({error.strerror}); name another file."
            ) from error
        with self.transaction() as connection:
            found = connection.execute("PRAGMA application_id").fetchone()[0]
            tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
            if found == 0 and tables == 0:
                connection.execute(f"PRAGMA application_id = {application_id:d}")
                connection.execute(schema)
            elif found != application_id:
                raise LabError(
                    f"Expected {path} to be a database of kind {application_id:#x}, but it is of kind {found:#x}; "
                    "name another file."
                )

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection inside a write transaction: committed at the end, rolled back on any exception."""
        try:
            with contextlib.closing(
                sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
            ) as connection:
                connection.execute("PRAGMA synchronous = FULL")
                # What is deleted is overwritten, not only unlinked from its page.
                connection.execute("PRAGMA secure_delete = ON")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:  # a full disk has already rolled it back
                        connection.execute("ROLLBACK")
                    raise
        except sqlite3.DatabaseError as error:
            raise LabError(
                f"Expected a usable database at {self.path}, but SQLite says: {error}; check the file and its "
                "permissions, or name another one."
            ) from error


def _make_private(path: Path) -> None:
    """Make an empty file that only its owner reads, unless there is one; SQLite's own would be open to others.

    The file is made under another name: a process that closes any descriptor of a database drops the locks of
    all its threads on it (https://www.sqlite.org/howtocorrupt.html, section 2.2).
    """
    if path.exists():
        return
    descriptor, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(descriptor)
    try:
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.link(made, path)
    finally:
        Path(made).unlink()
