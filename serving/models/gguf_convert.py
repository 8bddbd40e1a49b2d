"""Write a GGUF's tensors as one float32 safetensors file, with several processes, hashed on the way."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import IO

import serving
from serving.errors import LabError
from serving.models.gguf_layout import Layout, Piece
from serving.models.gguf_worker import Job
from serving.progress import Progress

_MAX_WORKERS = 4
_WORKER_BYTES = 64 << 20
"""A worker needs about a second to start, in which another writes this much."""


def write_safetensors(
    gguf: Path, layout: Layout, target: Path, *, progress: Progress, workers: int | None = None
) -> str:
    """Dequantise every piece of `layout` from `gguf` into the new file `target`; return its SHA-256.

    Pieces are dealt out in file order, so the finished part grows from the front, and this process hashes it
    while the others work: hashing alone takes about as long as the dequantisation. Progress counts bytes of
    the result. Raises `LabError` with the worker's own last line when one fails, or when the disk is full.
    """
    useful = -(-layout.total_bytes // _WORKER_BYTES)
    count = workers or min(os.cpu_count() or 1, _MAX_WORKERS, useful)
    progress.begin("convert", total=layout.total_bytes, unit="bytes")
    with target.open("xb") as file:
        file.write(layout.header)
        file.truncate(layout.total_bytes)
    indexed = tuple(enumerate(layout.pieces))
    jobs = [Job(gguf, target, indexed[first::count]) for first in range(count)]
    # Unbuffered: a buffer would read ahead, into pieces that are still empty.
    with target.open("rb", buffering=0) as written, _running(jobs) as finished:
        digest = _hash_growing(written, layout, finished, progress)
    progress.end()
    return digest


def _hash_growing(written: FileIO, layout: Layout, finished: Iterator[int], progress: Progress) -> str:
    digest = hashlib.sha256(layout.header)
    done = [False] * len(layout.pieces)
    front = 0
    for index in finished:
        done[index] = True
        progress.advance(layout.pieces[index].bytes)
        while front < len(done) and done[front]:
            _hash_piece(digest, written, layout.pieces[front])
            front += 1
    if front < len(done):
        raise LabError(
            f"Expected {len(done)} converted pieces, but the workers made {sum(done)}; pull again."
        )
    return digest.hexdigest()


def _hash_piece(digest: hashlib._Hash, written: FileIO, piece: Piece) -> None:
    left = piece.bytes
    while left:
        block = os.pread(written.fileno(), left, piece.target + piece.bytes - left)
        if not block:
            raise LabError(
                f"Expected {piece.name} in {written.name}, but the file ends before it; pull again."
            )
        digest.update(block)
        left -= len(block)


@contextlib.contextmanager
def _running(jobs: Sequence[Job]) -> Iterator[Iterator[int]]:
    """Start one process a job and give the indices that they report, all through one pipe."""
    environment = {
        **os.environ,
        "PYTHONPATH": _import_path(),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    read_end, write_end = os.pipe()
    children: list[subprocess.Popen[str]] = []
    with contextlib.ExitStack() as cleanup:
        reports = cleanup.enter_context(os.fdopen(read_end, "rb", buffering=0))
        errors = cleanup.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace"))
        cleanup.callback(_end, children)
        try:
            for _ in jobs:
                children.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "serving.models.gguf_worker"],
                        stdin=subprocess.PIPE,
                        stdout=write_end,
                        stderr=errors,
                        env=environment,
                        text=True,
                    )
                )
        finally:
            os.close(write_end)
        for child, job in zip(children, jobs, strict=True):
            assert child.stdin is not None
            with contextlib.suppress(BrokenPipeError), child.stdin as stdin:  # a dead child is reported below
                stdin.write(job.to_json())
        yield _reported(reports, children, errors)


def _reported(
    reports: IO[bytes], children: Sequence[subprocess.Popen[str]], errors: IO[str]
) -> Iterator[int]:
    """The indices as they come; the pipe ends when all children have, and then a failed one is raised."""
    rest = b""
    while block := reports.read(1 << 16):
        *whole, rest = (rest + block).split(b"\n")
        yield from map(int, whole)
    codes = [child.wait() for child in children]
    if any(codes):
        errors.seek(0)
        raise LabError(_failure(errors.read()))


def _end(children: Sequence[subprocess.Popen[str]]) -> None:
    for child in children:
        if child.poll() is None:
            child.kill()
        child.wait()


def _failure(errors: str) -> str:
    lines = [line for line in errors.splitlines() if line.strip()]
    last = lines[-1].strip() if lines else "the process ended without a word, as when memory runs out"
    return f"Expected the GGUF to convert, but a worker failed: {last}."


def _import_path() -> str:
    """The workers must find this very package, installed or not."""
    root = str(Path(serving.__path__[0]).parent)
    return os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
