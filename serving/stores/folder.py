"""Files that are written once: whole or not at all, first writer wins, never outside their folder.

A file is written under a random name in `incoming/`, made durable, and only then linked to its name. A writer
holds a lock on its own unfinished file; the system drops the lock when the process ends, however it ends, so
what a killed writer left is told apart from what another process is still writing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from serving.errors import LabError

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK a pipe planted under a file's name would hold the reader for ever.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_INCOMING: Final = "incoming"


class WriteOnceFolder:
    """A folder of areas, each holding files by plain names.

    The root may be reached over a symbolic link, which is its owner's choice; below it none is followed.
    `LabError` when the root cannot be made, or when something else lies where an area or a file belongs.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._root = root.resolve(strict=True)
        except OSError as error:
            raise LabError(
                f"Expected a folder that can be written at {root}, but it cannot be made ({error.strerror}); "
                "name another one."
            ) from error
        with self._area(_INCOMING) as incoming:
            _sweep(incoming)

    def publish(self, area: str, name: str, data: bytes) -> bool:
        """Put `data` under `name` unless the name is taken; True when this call placed it.

        In both cases the name survives a power cut once this returns. `LabError` when the disk is full or
        does not take the file for another reason; nothing is left of it then.
        """
        with self._area(_INCOMING) as incoming, self._area(area) as folder:
            try:
                with _staged(incoming, data) as staged:
                    return _placed(staged, incoming, name, folder)
            except OSError as error:
                raise LabError(
                    f"Expected to keep {len(data)} bytes in {self.root}, but the file cannot be written "
                    f"({error.strerror}); make room or use another folder."
                ) from error

    def read(self, area: str, name: str) -> bytes | None:
        """The bytes under `name`; None when nothing lies there."""
        with self._area(area) as folder:
            try:
                descriptor = os.open(name, _FILE, dir_fd=folder)
            except FileNotFoundError:
                return None
            except OSError as error:
                raise self._foreign(area, name) from error
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise self._foreign(area, name)
            with os.fdopen(descriptor, "rb") as file:
                return file.read()

    @contextlib.contextmanager
    def _area(self, area: str) -> Iterator[int]:
        """The descriptor of an area, made when it is missing."""
        with contextlib.ExitStack() as stack:
            try:
                root = _opened(stack, str(self._root), None)
                try:
                    folder = _opened(stack, area, root)
                except FileNotFoundError:
                    with contextlib.suppress(FileExistsError):  # another process was faster
                        os.mkdir(area, 0o700, dir_fd=root)
                    folder = _opened(stack, area, root)
                    os.fsync(root)
            except OSError as error:
                raise self._foreign(area) from error
            yield folder

    def _foreign(self, *place: str) -> LabError:
        return LabError(
            f"Expected {self.root.joinpath(*place)} to be this store's own, but it cannot be opened as such (a "
            "link, another kind of file, or no permission); remove what lies there or use another folder."
        )


def _placed(staged: str, incoming: int, name: str, folder: int) -> bool:
    try:
        os.link(staged, name, src_dir_fd=incoming, dst_dir_fd=folder, follow_symlinks=False)
        placed = True
    except FileExistsError:
        placed = False
    # Also for the loser: the winner may not have come this far when it was killed.
    os.fsync(folder)
    return placed


def _opened(stack: contextlib.ExitStack, path: str, parent: int | None) -> int:
    descriptor = os.open(path, _FOLDER, dir_fd=parent)
    stack.callback(os.close, descriptor)
    return descriptor


@contextlib.contextmanager
def _staged(incoming: int, data: bytes) -> Iterator[str]:
    """The name of a complete, durable and locked file in `incoming`, gone afterwards."""
    while True:
        name = secrets.token_hex(16)
        descriptor = os.open(name, _NEW, 0o600, dir_fd=incoming)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            break
        # A sweep came between the two calls above and took the file for a dead writer's.
        os.close(descriptor)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
            yield name
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=incoming)


def _sweep(incoming: int) -> None:
    """Remove the unfinished files of writers that are no longer alive."""
    for name in os.listdir(incoming):
        try:
            descriptor = os.open(name, _FILE, dir_fd=incoming)
        except OSError:  # gone meanwhile, or a link, which no writer makes: nothing of ours to remove
            continue
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                continue
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=incoming)
        finally:
            os.close(descriptor)
