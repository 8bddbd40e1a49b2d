from __future__ import annotations

from pathlib import Path

import pytest

from serving.errors import UsageError
from serving.models import ensure
from serving.models.local import read_facts

CONFIG = b'{"architectures": ["Qwen3ForCausalLM"], "max_position_embeddings": 512}'


def written(folder: Path, name: str, content: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").touch()
    (folder / "config.json").write_bytes(CONFIG)
    (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b""),
        ("config.json", b"[1]"),
        ("config.json", b"\xff"),
        ("config.json", b"[" * 100_000),
        ("config.json", b'{"architectures": [], "max_position_embeddings": 1}'),
        ("chat_template.jinja", b"\xff\xfe"),
        ("tokenizer_config.json", b"nonsense"),
    ],
)
def test_a_broken_file_of_a_folder_is_named_in_one_sentence(
    tmp_path: Path, name: str, content: bytes
) -> None:
    folder = written(tmp_path / "model", name, content)
    with pytest.raises(UsageError, match=f"Expected .*{name}"):
        ensure(str(folder), cache=tmp_path / "cache")


def test_a_sound_folder_tells_its_facts(tmp_path: Path) -> None:
    facts = read_facts(written(tmp_path / "model", "chat_template.jinja", b"{{ tools }} <tool_call>"))
    assert (facts.architecture, facts.tool_parser) == ("Qwen3ForCausalLM", "hermes")
