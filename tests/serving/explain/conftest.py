"""Small models for the explanations: real templates, and one that prints the date."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tiny_models import tiny_model

DATED = (
    "<|im_start|>system\nToday is {{ strftime_now('%d %B %Y') }}. "
    "{{ messages[0].content }}<|im_end|>\n"
    "{% for m in messages[1:] %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One folder a template: `qwen3`, `qwen2_5`, `smollm2`, and `dated`."""
    root = tmp_path_factory.mktemp("models")
    sources = {"qwen3": "qwen3", "qwen2_5": "qwen2_5", "smollm2": "smollm2", "dated": DATED}
    return {name: tiny_model(root / name, source) for name, source in sources.items()}
