"""One conversion process: `python -m serving.models.gguf_worker`, its job as JSON on standard input.

It writes float32 rows at their places in a file that already has its full size, and one line with a piece's
index on standard output after each. When nobody reads those lines any more the next write fails and the
process ends, so a killed pull leaves no worker behind.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from serving.models.gguf_layout import Piece

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Job:
    """What one worker does: every `stride`-th piece from `start` on."""

    source: Path
    target: Path
    pieces: tuple[tuple[int, Piece], ...]
    """(index in the whole plan, piece)"""

    def to_json(self) -> str:
        pieces = [[index, asdict(piece)] for index, piece in self.pieces]
        return json.dumps({"source": str(self.source), "target": str(self.target), "pieces": pieces})

    @staticmethod
    def from_json(text: str) -> Job:
        raw = json.loads(text)
        pieces = tuple((index, Piece(**piece)) for index, piece in raw["pieces"])
        return Job(Path(raw["source"]), Path(raw["target"]), pieces)


def run_job(job: Job) -> Iterator[int]:
    """Do the job, yielding the index of each piece that is in the file; raises `ValueError` on a bad GGUF."""
    import numpy as np

    source = np.memmap(job.source, dtype=np.uint8, mode="r")
    target = os.open(job.target, os.O_WRONLY)
    try:
        for index, piece in job.pieces:
            values = np.ascontiguousarray(dequantise_piece(source, piece), dtype="<f4")
            _write_all(target, values.data.cast("B"), piece.target)
            yield index
    finally:
        os.close(target)


def dequantise_piece(source: NDArray[np.uint8], piece: Piece) -> NDArray[np.float32]:
    """The piece's rows as published, shape (rows, columns), float32."""
    import numpy as np
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize

    quantization = GGMLQuantizationType(piece.quantization)
    block, block_bytes = GGML_QUANT_SIZES[quantization]
    if piece.columns % block:
        raise ValueError(
            f"{piece.name}: {piece.columns} columns are no multiple of {quantization.name}'s {block}"
        )
    row_bytes = piece.columns // block * block_bytes
    start = piece.source + piece.first_row * row_bytes
    raw = source[start : start + piece.rows * row_bytes]
    if raw.size != piece.rows * row_bytes:
        raise ValueError(f"{piece.name}: the file ends at byte {source.size}, inside the tensor")
    stored = raw.reshape(piece.rows, row_bytes)
    if piece.permuted_heads:
        stored = stored[published_row_order(piece.rows, piece.permuted_heads)]
    values = dequantize(stored, quantization)
    return np.asarray(values, dtype=np.float32).reshape(piece.rows, piece.columns)


def published_row_order(rows: int, heads: int) -> NDArray[np.intp]:
    """For each published row its row in the GGUF.

    llama.cpp's converter turns a head's two rotary halves [a0 a1 … b0 b1 …] into pairs [a0 b0 a1 b1 …]
    (`LlamaModel.permute` in convert_hf_to_gguf.py); this is the way back.
    """
    import numpy as np

    if rows % (2 * heads):
        raise ValueError(f"{rows} rows cannot be {heads} heads with two halves each")
    return np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(-1)


def _write_all(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


def _spare_imports() -> None:
    """Keep `import gguf` small in this process.

    `gguf.vocab`, imported by the package itself, loads mistral_common and sentencepiece when they are
    installed (seconds, and OpenCV); dequantisation needs neither, and gguf works without them.
    """
    for name in ("mistral_common", "sentencepiece"):
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]


def main() -> None:
    """Run the job on standard input."""
    _spare_imports()
    job = Job.from_json(sys.stdin.read())
    for index in run_job(job):
        os.write(sys.stdout.fileno(), f"{index}\n".encode())


if __name__ == "__main__":
    main()
