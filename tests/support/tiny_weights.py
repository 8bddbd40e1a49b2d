"""A whole model that fits a test: a real template, a small tokenizer, and random weights of two layers."""

from __future__ import annotations

import json
from pathlib import Path

from serving.models import ModelFolder, ModelSource, Weights
from serving.models.folder import write_record
from tests.support.tiny_model import write_tiny_folder

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "vocab_size": 768,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "initializer_range": 0.3,
}


def write_tiny_weights(folder: Path, template: str = "qwen2_5") -> ModelFolder:
    """Write the folder, random weights declared in its record, and give the record."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tiny_folder(folder, template)
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    record = ModelFolder(
        name="tiny",
        path=folder,
        source=ModelSource.PATH,
        origin="made for a test",
        revision=None,
        license=None,
        weights=Weights.DUMMY,
        weights_sha256=None,
        architecture="Qwen2ForCausalLM",
        tool_parser=None,
        reasoning_parser=None,
        max_position_embeddings=4096,
        size_bytes=sum(file.stat().st_size for file in folder.iterdir()),
    )
    write_record(record, folder)
    return record
