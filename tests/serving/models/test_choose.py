from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from serving.models import choose
from serving.models.folder import ModelFolder, ModelSource, Weights, write_record
from serving.models.hub import hub_answers


def yes(repo: str, environ: Mapping[str, str]) -> bool:
    return True


def no(repo: str, environ: Mapping[str, str]) -> bool:
    return False


def never(repo: str, environ: Mapping[str, str]) -> bool:
    raise AssertionError("the hub must not be asked")


def test_what_was_asked_for_wins(tmp_path: Path) -> None:
    environ = {"CTXLAB_MODEL": "other", "CTXLAB_CACHE": str(tmp_path)}
    assert choose("mine", environ, answers=never).name == "mine"


def test_the_environment_comes_second(tmp_path: Path) -> None:
    environ = {"CTXLAB_MODEL": "other", "CTXLAB_CACHE": str(tmp_path)}
    assert choose(None, environ, answers=never).reason == "other is named by CTXLAB_MODEL."


@pytest.mark.parametrize(("answers", "name"), [(yes, "qwen3-0.6b"), (no, "qwen2.5-coder-0.5b")])
def test_the_hub_decides_the_default(answers: object, name: str, tmp_path: Path) -> None:
    assert choose(None, {"CTXLAB_CACHE": str(tmp_path)}, answers=yes if answers is yes else no).name == name


def test_a_default_on_this_disk_needs_no_hub(tmp_path: Path) -> None:
    ready = tmp_path / "models" / "qwen3-0.6b"
    ready.mkdir(parents=True)
    folder = ModelFolder(
        name="qwen3-0.6b",
        path=ready,
        source=ModelSource.HUB,
        origin="Hugging Face hub Qwen/Qwen3-0.6B",
        revision="0" * 40,
        license="Apache-2.0",
        weights=Weights.REAL,
        weights_sha256=None,
        architecture="Qwen3ForCausalLM",
        tool_parser="hermes",
        reasoning_parser="qwen3",
        max_position_embeddings=40960,
        size_bytes=1,
    )
    write_record(folder, ready)
    choice = choose(None, {"CTXLAB_CACHE": str(tmp_path)}, answers=never)
    assert choice.name == "qwen3-0.6b"
    assert "on this disk" in choice.reason


def test_a_forbidden_hub_is_not_asked_and_is_the_reason(tmp_path: Path) -> None:
    choice = choose(None, {"CTXLAB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"})
    assert choice.name == "qwen2.5-coder-0.5b"
    assert choice.reason.startswith("HF_HUB_OFFLINE is set")


def test_a_hub_that_refuses_connections_does_not_answer() -> None:
    assert hub_answers("Qwen/Qwen3-0.6B", {"HF_ENDPOINT": "http://127.0.0.1:9"}) is False
