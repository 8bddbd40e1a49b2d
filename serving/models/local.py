"""Model folders that the lab did not make: the user's own, and what can be told from their files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from serving.errors import UsageError
from serving.models.files import folder_bytes, read_json_object, read_utf8, weights_digest, write_json
from serving.models.folder import ModelFolder, ModelSource, Weights, read_record


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """What a folder's own configuration and chat template say."""

    architecture: str
    max_position_embeddings: int
    tool_parser: str | None
    reasoning_parser: str | None


def describe_local(path: Path, root: Path) -> ModelFolder:
    """Describe the model folder at `path`, which is used where it lies; nothing is written into it.

    The digest of its weights is remembered under the cache `root`, by name, size and time of the files.
    Raises `UsageError` when the folder is no model.
    """
    if (recorded := read_record(path)) is not None:
        return recorded
    if not (path / "config.json").is_file() or not any(path.glob("*.safetensors")):
        raise UsageError(
            f"Expected a model folder with config.json and *.safetensors at {path}, but it has no such "
            f"files; give a folder in Hugging Face's layout, or a GGUF file."
        )
    facts = read_facts(path)
    return ModelFolder(
        name=path.name,
        path=path,
        source=ModelSource.PATH,
        origin=f"folder {path}",
        revision=None,
        license=None,
        weights=Weights.REAL,
        weights_sha256=_remembered_digest(path, root),
        architecture=facts.architecture,
        tool_parser=facts.tool_parser,
        reasoning_parser=facts.reasoning_parser,
        max_position_embeddings=facts.max_position_embeddings,
        size_bytes=folder_bytes(path),
    )


def read_facts(folder: Path) -> FolderFacts:
    """Read `config.json` and the chat template; raises `UsageError` when a basic fact is missing."""
    config = read_json_object(folder / "config.json")
    architectures = config.get("architectures")
    positions = config.get("max_position_embeddings")
    if not (isinstance(architectures, list) and architectures and isinstance(positions, int)):
        raise UsageError(
            f"Expected 'architectures' and 'max_position_embeddings' in {folder / 'config.json'}, but one is "
            f"missing; the lab serves decoder-only text models."
        )
    template = _chat_template(folder)
    return FolderFacts(
        architecture=str(architectures[0]),
        max_position_embeddings=positions,
        tool_parser=tool_parser_for(template),
        reasoning_parser="qwen3" if "<think>" in template and config.get("model_type") == "qwen3" else None,
    )


def tool_parser_for(template: str) -> str | None:
    """vLLM's tool parser for the dialect in which a template writes calls; `None` when it knows no tools.

    JSON inside `<tool_call>` is Hermes' dialect (Qwen2.5, Qwen3), `<function=…>` inside it is Qwen3-Coder's.
    """
    if "tools" not in template or "<tool_call>" not in template:
        return None
    return "qwen3_coder" if "<function=" in template else "hermes"


def _chat_template(folder: Path) -> str:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return read_utf8(file)
    settings = folder / "tokenizer_config.json"
    inside = read_json_object(settings).get("chat_template") if settings.is_file() else None
    return inside if isinstance(inside, str) else ""


def _remembered_digest(path: Path, root: Path) -> str | None:
    shards = [(file.name, file.stat()) for file in sorted(path.glob("*.safetensors"))]
    state = json.dumps([[name, stat.st_size, stat.st_mtime_ns] for name, stat in shards])
    key = hashlib.sha256(str(path.resolve()).encode("utf-8", "surrogateescape")).hexdigest()
    memory = root / "digests" / f"{key}.json"
    if memory.is_file():
        remembered = read_json_object(memory)
        digest = remembered.get("sha256")
        if remembered.get("state") == state and isinstance(digest, str):
            return digest
    digest = weights_digest(path)
    memory.parent.mkdir(parents=True, exist_ok=True)
    partial = memory.with_suffix(".partial")
    write_json(partial, {"folder": str(path), "state": state, "sha256": digest})
    partial.replace(memory)
    return digest
