from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from serving.errors import LabError, UsageError
from serving.models import (
    ModelFolder,
    ModelSource,
    Weights,
    cache_root,
    describe,
    list_models,
    load_catalogue,
)
from serving.models.cache import CachePlace
from serving.models.files import gigabytes, weights_digest
from serving.models.folder import read_record, write_record
from serving.models.local import tool_parser_for


def put(cache: Path, name: str) -> ModelFolder:
    path = CachePlace(cache, name).ready
    path.mkdir(parents=True)
    folder = ModelFolder(
        name=name,
        path=path,
        source=ModelSource.HUB,
        origin=f"Hugging Face hub {name}",
        revision="0" * 40,
        license=None,
        weights=Weights.REAL,
        weights_sha256=None,
        architecture="Qwen3ForCausalLM",
        tool_parser=None,
        reasoning_parser=None,
        max_position_embeddings=64,
        size_bytes=7,
    )
    write_record(folder, path)
    return folder


def test_the_list_is_the_catalogue_and_then_what_else_is_here(tmp_path: Path) -> None:
    other, known = put(tmp_path, "a/m"), put(tmp_path, "qwen3-4b")
    listings = list_models(cache=tmp_path)
    assert [listing.name for listing in listings] == [*load_catalogue(), "a/m"]
    here = {listing.name: listing.folder for listing in listings if listing.folder is not None}
    assert here == {"qwen3-4b": known, "a/m": other}


def test_an_empty_cache_lists_the_catalogue(tmp_path: Path) -> None:
    assert len(list_models(cache=tmp_path / "none")) == len(load_catalogue())


def test_a_model_is_described_by_name(tmp_path: Path) -> None:
    put(tmp_path, "a/m")
    assert describe("a/m", cache=tmp_path).disk_bytes == 7
    assert describe("smollm2-135m", cache=tmp_path).download_bytes == 92_871_040
    with pytest.raises(UsageError, match="'b/m' is neither"):
        describe("b/m", cache=tmp_path)


@pytest.mark.parametrize("content", [b'{"name": "a/m"', b"\xff", b"[1]"])
def test_a_damaged_record_is_named(tmp_path: Path, content: bytes) -> None:
    path = put(tmp_path, "a/m").path
    (path / "ctxlab.json").write_bytes(content)
    with pytest.raises(LabError, match=r"record in .*ctxlab\.json, but it cannot be read"):
        read_record(path)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a\0b", "x" * 300])
def test_a_name_that_leaves_the_cache_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        CachePlace(tmp_path, name)


def test_the_cache_is_where_the_environment_says(tmp_path: Path) -> None:
    assert cache_root({"CTXLAB_CACHE": str(tmp_path)}) == tmp_path
    assert cache_root({}).name == "ctxlab"


def test_the_digest_of_shards_is_that_of_sha256sums_text(tmp_path: Path) -> None:
    import hashlib

    for name in ("b.safetensors", "a.safetensors"):
        (tmp_path / name).write_bytes(name.encode())
    lines = "".join(
        f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n"
        for name in ("a.safetensors", "b.safetensors")
    )
    assert weights_digest(tmp_path) == hashlib.sha256(lines.encode()).hexdigest()
    assert weights_digest(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("template", "parser"),
    [
        ("{{ messages }}", None),
        ("tools <tool_call>", "hermes"),
        ("tools <tool_call><function=", "qwen3_coder"),
    ],
)
def test_the_tool_parser_follows_the_templates_dialect(template: str, parser: str | None) -> None:
    assert tool_parser_for(template) == parser


def test_sizes_are_in_powers_of_ten() -> None:
    assert (gigabytes(2_520_702_368), gigabytes(98_362_432)) == ("2.52 GB", "98 MB")


def test_importing_the_room_imports_no_heavy_library() -> None:
    heavy = "torch transformers vllm gguf huggingface_hub numpy httpx tokenizers"
    code = f"import sys, serving.models; print([m for m in '{heavy}'.split() if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
