"""From a GGUF file to a model folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from serving.models.files import write_json
from serving.models.gguf_config import describe_gguf
from serving.models.gguf_convert import write_safetensors
from serving.models.gguf_header import read_gguf_header
from serving.models.gguf_layout import plan_layout
from serving.progress import Progress


@dataclass(frozen=True, slots=True)
class Converted:
    """What the conversion knows for the record."""

    architecture: str
    max_position_embeddings: int
    weights_sha256: str


def convert_gguf(gguf: Path, into: Path, *, progress: Progress) -> Converted:
    """Fill the empty folder `into` with the model in `gguf`: weights, configuration, tokenizer, template.

    Raises `LabError` when the GGUF is torn or of a kind that cannot be converted faithfully.
    """
    header = read_gguf_header(gguf)
    model = describe_gguf(header)
    layout = plan_layout(
        header, model.family, blocks=model.blocks, heads=model.heads, kv_heads=model.kv_heads
    )
    for name, content in model.files.items():
        write_json(into / name, content)
    if model.chat_template is not None:
        (into / "chat_template.jinja").write_text(model.chat_template, "utf-8")
    digest = write_safetensors(gguf, layout, into / "model.safetensors", progress=progress)
    return Converted(
        architecture=model.architecture,
        max_position_embeddings=model.max_position_embeddings,
        weights_sha256=digest,
    )


def float32_bytes(gguf: Path) -> int:
    """Bytes that the converted weights of `gguf` will take."""
    header = read_gguf_header(gguf)
    model = describe_gguf(header)
    return plan_layout(
        header, model.family, blocks=model.blocks, heads=model.heads, kv_heads=model.kv_heads
    ).total_bytes
