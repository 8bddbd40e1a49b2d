"""The Hugging Face hub: does it answer, and a repository at one commit."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from serving.errors import LabError
from serving.models.files import gigabytes, require_free_space, require_sha256
from serving.progress import Progress

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

_ANSWER_SECONDS = 3.0
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

# Nothing that runs: no Python, no pickles.
_PATTERNS = ("*.safetensors", "*.json", "*.jinja", "tokenizer.model", "merges.txt", "vocab.txt")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the hub says about the files that were downloaded."""

    revision: str
    license: str | None


def is_hub_id(name: str) -> bool:
    """Whether `name` has the form `owner/repository`."""
    return _HUB_ID.fullmatch(name) is not None


def hub_offline(environ: Mapping[str, str]) -> bool:
    """Whether the user forbids the hub (`HF_HUB_OFFLINE`, as huggingface_hub reads it)."""
    return environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def hub_answers(repo: str, environ: Mapping[str, str]) -> bool:
    """Whether the hub serves `repo` within a few seconds: one HEAD request, none when told to be offline."""
    if hub_offline(environ):
        return False
    import httpx

    endpoint = environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    try:
        answer = httpx.head(f"{endpoint}/{repo}/resolve/main/config.json", timeout=_ANSWER_SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL):
        return False
    return answer.status_code < 400


def download_snapshot(repo: str, revision: str | None, into: Path, *, progress: Progress) -> Snapshot:
    """Download `repo` at `revision` (`None`: the present `main`) into the folder `into`, hashes checked.

    Only weights (safetensors), JSON, templates and tokenizer files are taken. Files that an interrupted pull
    left in `into` are kept and continued by huggingface_hub. Raises `LabError` when the hub cannot be
    reached, the repository is not there or closed, a digest is wrong, or the disk is too small.
    """
    from fnmatch import fnmatch

    info = _ask(repo, revision)
    if info.sha is None:
        raise LabError(f"Expected the hub to name the commit of {repo}, but it did not; give a revision.")
    wanted = [file for file in info.siblings or [] if any(fnmatch(file.rfilename, p) for p in _PATTERNS)]
    if not any(file.rfilename.endswith(".safetensors") for file in wanted):
        raise LabError(
            f"Expected safetensors weights in {repo}, but the repository has none; give another model."
        )
    total = sum(file.size or 0 for file in wanted)
    require_free_space(into, total, repo)
    progress.begin(f"download {repo} ({gigabytes(total)})", total=total, unit="bytes")
    for file in wanted:
        _download_file(repo, file.rfilename, info.sha, into)
        if file.lfs is not None:
            _require_digest(into / file.rfilename, file.lfs.sha256, repo)
        progress.advance(file.size or 0)
    shutil.rmtree(into / ".cache", ignore_errors=True)
    progress.end()
    license_name = info.card_data.get("license") if info.card_data is not None else None
    return Snapshot(info.sha, license_name if isinstance(license_name, str) else None)


def _require_digest(path: Path, expected: str, repo: str) -> None:
    try:
        require_sha256(path, expected, f"{path.name} of {repo}")
    except LabError:
        path.unlink()
        raise


def _ask(repo: str, revision: str | None) -> ModelInfo:
    import huggingface_hub
    from huggingface_hub.errors import (
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        return huggingface_hub.HfApi().model_info(repo, revision=revision, files_metadata=True, timeout=30)
    except GatedRepoError as error:
        raise LabError(
            f"Expected an open repository, but {repo} asks for consent; accept its terms on the hub, log in "
            f"with `hf auth login`, and pull again."
        ) from error
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise LabError(
            f"Expected {repo}{f' at {revision}' if revision else ''} on the hub, but it is not there; "
            f"check the name, or serve a model that is on this disk with --model PATH."
        ) from error
    except _network_errors() as error:
        raise _unreachable(repo, error) from error


def _download_file(repo: str, filename: str, commit: str, into: Path) -> None:
    import huggingface_hub

    try:
        huggingface_hub.hf_hub_download(repo, filename, revision=commit, local_dir=into)
    except _network_errors() as error:
        raise _unreachable(f"{repo}/{filename}", error) from error


def _network_errors() -> tuple[type[Exception], ...]:
    """huggingface_hub lets its HTTP library's errors through; which library depends on its version."""
    import httpx

    found: list[type[Exception]] = [OSError, httpx.HTTPError]
    try:
        import httpx2
    except ImportError:
        return tuple(found)
    found.append(httpx2.HTTPError)
    return tuple(found)


def _unreachable(what: str, error: Exception) -> LabError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return LabError(
        f"Expected to get {what} from the Hugging Face hub, but it failed: {reason}; check the network, use "
        f"the embedded qwen2.5-coder-0.5b, or serve a model that is on this disk with --model PATH."
    )
