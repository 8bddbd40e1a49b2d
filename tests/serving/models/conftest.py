"""A tiny model in every form: GGUF files written by the gguf package, and wheels that carry one."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from serving.models.bpe import byte_alphabet
from serving.models.catalogue import CatalogueEntry, GgufRecipe, Wheel

HIDDEN, HEADS, KV_HEADS, FEED, BLOCKS = 256, 4, 2, 512, 2
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"

MakeGguf = Callable[..., Path]
MakeEntry = Callable[..., CatalogueEntry]


@pytest.fixture(scope="session")
def make_gguf() -> MakeGguf:
    """Write a tiny GGUF with the gguf package: quantised blocks of every kind the real models use."""
    import gguf
    import numpy as np

    kinds = gguf.GGMLQuantizationType
    per_part = {
        "attn_q.weight": kinds.Q5_0,
        "attn_k.weight": kinds.Q8_0,
        "attn_v.weight": kinds.Q4_1,
        "attn_output.weight": kinds.Q4_K,
        "ffn_gate.weight": kinds.Q6_K,
        "ffn_up.weight": kinds.F16,
        "ffn_down.weight": kinds.Q4_K,
    }

    def quantised(rng: Any, shape: tuple[int, int], kind: Any) -> Any:
        values = rng.standard_normal(shape, dtype=np.float32)
        try:
            return gguf.quants.quantize(values, kind)
        except NotImplementedError:  # the K kinds can only be read: bytes of our own, scales kept finite
            block, size = gguf.GGML_QUANT_SIZES[kind]
            return rng.integers(0, 60, (shape[0], shape[1] // block * size), dtype=np.uint8)

    def make(path: Path, family: str = "qwen2", *, omit: str = "", extra: str = "", seed: int = 0) -> Path:
        rng = np.random.default_rng(seed)
        alphabet = [*byte_alphabet().values()]
        tokens = (
            [*SPECIAL, *alphabet, "Ġt", "he", "Ġthe"]
            if family == "llama"
            else [*alphabet, "Ġt", "he", "Ġthe"]
        )
        types = [3 if token in SPECIAL else 1 for token in tokens]
        if family == "qwen2":
            tokens, types = [*tokens, *SPECIAL, "[PAD1]"], [*types, 3, 3, 3, 5]
        writer = gguf.GGUFWriter(path, family)
        writer.add_block_count(BLOCKS)
        writer.add_context_length(512)
        writer.add_embedding_length(HIDDEN)
        writer.add_feed_forward_length(FEED)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(KV_HEADS)
        writer.add_rope_freq_base(1e6)
        writer.add_layer_norm_rms_eps(1e-6)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2" if family == "qwen2" else "smollm")
        writer.add_token_list(tokens)
        writer.add_token_types(types)
        writer.add_token_merges(["Ġ t", "h e", "Ġt he"])
        writer.add_bos_token_id(tokens.index("<|endoftext|>"))
        writer.add_eos_token_id(tokens.index("<|im_end|>"))
        writer.add_chat_template(TEMPLATE)

        def add(name: str, values: Any, kind: Any = None) -> None:
            if name != omit:
                writer.add_tensor(name, values, raw_dtype=kind)

        add("token_embd.weight", quantised(rng, (len(tokens), HIDDEN), kinds.Q8_0), kinds.Q8_0)
        add("output_norm.weight", rng.standard_normal(HIDDEN, dtype=np.float32))
        if family == "qwen2":
            add("output.weight", quantised(rng, (len(tokens), HIDDEN), kinds.Q6_K), kinds.Q6_K)
        kv = HIDDEN // HEADS * KV_HEADS
        shapes = {
            "attn_q.weight": (HIDDEN, HIDDEN),
            "attn_k.weight": (kv, HIDDEN),
            "attn_v.weight": (kv, HIDDEN),
            "attn_output.weight": (HIDDEN, HIDDEN),
            "ffn_gate.weight": (FEED, HIDDEN),
            "ffn_up.weight": (FEED, HIDDEN),
            "ffn_down.weight": (HIDDEN, FEED),
        }
        for block in range(BLOCKS):
            for part, shape in shapes.items():
                add(f"blk.{block}.{part}", quantised(rng, shape, per_part[part]), per_part[part])
            for norm in ("attn_norm", "ffn_norm"):
                add(f"blk.{block}.{norm}.weight", rng.standard_normal(HIDDEN, dtype=np.float32))
            if family == "qwen2":
                for part, size in (("q", HIDDEN), ("k", kv), ("v", kv)):
                    add(f"blk.{block}.attn_{part}.bias", rng.standard_normal(size, dtype=np.float32))
        if extra:
            add(extra, rng.standard_normal(HIDDEN, dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return make


@pytest.fixture(scope="session")
def tiny_gguf(make_gguf: MakeGguf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny qwen2 GGUF; treat it as read-only."""
    return make_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture
def make_entry() -> MakeEntry:
    """Cut a GGUF into wheels in a folder, and describe them as a catalogue entry."""

    def make(gguf: Path, folder: Path, *, parts: int = 3, name: str = "tiny") -> CatalogueEntry:
        content = gguf.read_bytes()
        step = -(-len(content) // parts)
        wheels = [
            write_wheel(folder, f"ctxlab-test-{name}-part{i + 1}", content[i * step : (i + 1) * step])
            for i in range(parts)
        ]
        return entry_of(wheels, content, name)

    return make


def write_wheel(folder: Path, project: str, member: bytes) -> Wheel:
    folder.mkdir(parents=True, exist_ok=True)
    draft = Wheel(project=project, version="1.0", sha256="0" * 64, size_bytes=0, member="data/part.bin")
    path = folder / draft.filename
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data/part.bin", member)
        info = f"{project.replace('-', '_')}-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    return draft.model_copy(update={"sha256": digest, "size_bytes": len(content)})


def entry_of(wheels: Sequence[Wheel], gguf: bytes, name: str) -> CatalogueEntry:
    return CatalogueEntry(
        name=name,
        summary="a tiny model",
        license="Apache-2.0",
        architecture="Qwen2ForCausalLM",
        tool_parser="hermes",
        download_bytes=sum(wheel.size_bytes for wheel in wheels),
        disk_bytes=10_000_000,
        recipe=GgufRecipe(
            wheels=tuple(wheels), gguf_sha256=hashlib.sha256(gguf).hexdigest(), gguf_bytes=len(gguf)
        ),
    )
