"""Small file work that the ways to get a model share: digests, room on the disk, JSON."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import JsonValue

from serving.errors import LabError, UsageError

CONFIG_LAYOUT = "4.51.0"
"""`transformers_version` of the `config.json` files written here: the release whose keys they use
(`torch_dtype`, `rope_theta`). Without it transformers takes the tokenizer beside it for a broken Mistral one
and warns."""

_REPAIR = "repair the file, or pull the model again"
_READ_BYTES = 1 << 22
_DISK_RESERVE_BYTES = 256 << 20


def sha256_file(path: Path, advance: Callable[[int], None] | None = None) -> str:
    """SHA-256 of a file as lower-case hex; `advance` is told the bytes read."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            digest.update(block)
            if advance is not None:
                advance(len(block))
    return digest.hexdigest()


def require_sha256(path: Path, expected: str, what: str) -> None:
    """Raise `LabError` naming both digests unless the file at `path` has the `expected` one."""
    found = sha256_file(path)
    if found != expected:
        raise LabError(wrong_digest(what, expected, found))


def wrong_digest(what: str, expected: str, found: str) -> str:
    """The sentence for a file whose content is not the pinned one."""
    return (
        f"Expected {what} to have SHA-256 {expected}, but it has {found}; it is not used: "
        f"pull again, and if the difference stays, the published file has changed and must not be used."
    )


def weights_digest(folder: Path) -> str | None:
    """SHA-256 of a folder's weights, or `None` when it holds no safetensors.

    One file: the file's own digest. Several: the digest of the lines `<sha256>  <name>\\n` in name order, the
    text that `sha256sum *.safetensors` prints, so that anybody can repeat it.
    """
    shards = sorted(folder.glob("*.safetensors"))
    if not shards:
        return None
    digests = [(sha256_file(shard), shard.name) for shard in shards]
    if len(digests) == 1:
        return digests[0][0]
    return hashlib.sha256("".join(f"{digest}  {name}\n" for digest, name in digests).encode()).hexdigest()


def folder_bytes(folder: Path) -> int:
    """Bytes of all regular files below `folder`."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def require_free_space(directory: Path, needed_bytes: int, what: str) -> None:
    """Raise `LabError` unless the disk under `directory` can take `needed_bytes` and a small reserve."""
    free = shutil.disk_usage(directory).free
    if free < needed_bytes + _DISK_RESERVE_BYTES:
        raise LabError(
            f"Expected {gigabytes(needed_bytes + _DISK_RESERVE_BYTES)} free under {directory} for {what}, "
            f"but {gigabytes(free)} are free; make room, or set CTXLAB_CACHE to a folder on a larger disk."
        )


def gigabytes(count: int) -> str:
    """A size for people, in powers of ten ("2.52 GB", "98 MB")."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def write_json(path: Path, value: Mapping[str, JsonValue]) -> None:
    """Write `value` as UTF-8 JSON, keys in the order given."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")


def read_json_object(path: Path) -> dict[str, JsonValue]:
    """Read a JSON object; raises `UsageError` naming the file when it is missing or is something else."""
    try:
        value = json.loads(read_utf8(path))
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"Expected a JSON object in {path}, but it is no JSON ({error}): {_REPAIR}."
        ) from error
    if not isinstance(value, dict):
        raise UsageError(
            f"Expected a JSON object in {path}, but it holds a {type(value).__name__}: {_REPAIR}."
        )
    return value


def read_utf8(path: Path) -> str:
    """The text of a model's file; raises `UsageError` naming the file when it is missing or no UTF-8."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"Expected a text file in UTF-8 at {path}, but it cannot be read ({error}): {_REPAIR}."
        ) from error
