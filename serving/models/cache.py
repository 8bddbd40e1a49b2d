"""Where models live on this disk, and how two pulls stay out of each other's way.

<root>/models/<folder name>/     finished: moved here in one step, with its record inside
<root>/staging/<folder name>/    being made; what it holds is checked before it is used again
<root>/locks/<folder name>.lock  held while a pull or a removal works on that name
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import platformdirs

from serving.errors import LabError, UsageError
from serving.progress import Progress


def cache_root(environ: Mapping[str, str] | None = None) -> Path:
    """`CTXLAB_CACHE` when set, else the platform's cache folder for ctxlab; need not exist yet."""
    chosen = (os.environ if environ is None else environ).get("CTXLAB_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else Path(platformdirs.user_cache_dir("ctxlab"))


class CachePlace:
    """The folders of one model name inside a cache."""

    def __init__(self, root: Path, name: str) -> None:
        """Raises `UsageError` for a name that cannot be a folder name."""
        key = name.replace("/", "--")
        if not key or key.startswith(".") or any(c in key for c in "\\\0") or len(key) > 200:
            raise UsageError(
                f"Expected a model name such as 'qwen3-0.6b' or 'Qwen/Qwen3-0.6B', but got {name!r}."
            )
        self.root = root
        self.ready = root / "models" / key
        self.staging = root / "staging" / key
        self._lock = root / "locks" / f"{key}.lock"

    @contextlib.contextmanager
    def locked(self, progress: Progress) -> Iterator[None]:
        """Hold this name's lock; the system drops it when the process ends, however it ends."""
        for folder in (self.ready.parent, self.staging.parent, self._lock.parent):
            _make(folder)
        with self._lock.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress.note(f"waiting: another process works on {self.ready.name}")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def publish(self, made: Path) -> None:
        """Move the finished folder `made` to its place in one step; readers see all of it or nothing.

        What lay there before is moved aside first: no caller replaces a folder that has a valid record.
        """
        self.discard()
        made.replace(self.ready)

    def discard(self) -> bool:
        """Remove the finished folder, if any, so that no half-removed one is ever seen."""
        doomed = self.staging.with_name(f"{self.staging.name}.removed")
        shutil.rmtree(doomed, ignore_errors=True)
        try:
            self.ready.replace(doomed)
        except FileNotFoundError:
            return False
        shutil.rmtree(doomed)
        return True


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(
            f"Expected to write the model cache at {folder}, but {error.strerror}; "
            f"set CTXLAB_CACHE to a folder that you can write to."
        ) from error
