from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest

from experiments.framework.served_model import ServedModel
from experiments.latency.target import from_served
from serving.client import Client
from serving.models import ModelFolder
from tests.experiments.latency.test_floors import QWEN3


def served(folder: Path, *, stored: str, told: str | None) -> ServedModel:
    (folder / "config.json").write_text(json.dumps({**QWEN3, "torch_dtype": stored}))
    made = ModelFolder.model_construct(name="m", path=folder)
    client = cast("Client", None)  # nothing is sent
    return ServedModel(client, made, block_size=16, num_blocks=9, max_model_len=99, dtype=told, device="cuda")


@pytest.mark.parametrize(
    ("stored", "told", "dtype", "width"),
    [
        ("bfloat16", "auto", "bfloat16", 2),
        ("bfloat16", None, "bfloat16", 2),
        ("bfloat16", "float32", "float32", 4),
        ("float32", "float32", "float32", 4),
        ("float32", "auto", None, None),
        ("float32", None, None, None),
    ],
)
def test_the_number_type_is_the_engines_and_unknown_where_the_device_chooses_it(
    tmp_path: Path, stored: str, told: str | None, dtype: str | None, width: int | None
) -> None:
    target = from_served(served(tmp_path, stored=stored, told=told))
    assert target.dtype == dtype
    assert (None if target.figures is None else target.figures.bytes_per_number) == width
