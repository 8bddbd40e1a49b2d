"""Capture: load a model, run the tokens through it once, and keep what its attention did."""

from __future__ import annotations

from collections.abc import Sequence

from serving.attention.capture import Capture
from serving.attention.options import CaptureOptions
from serving.attention.segments import Segments
from serving.models import ModelFolder
from serving.progress import Progress


def capture(
    model: ModelFolder,
    token_ids: Sequence[int],
    segments: Segments,
    options: CaptureOptions | None = None,
    progress: Progress | None = None,
) -> Capture:
    """The attention statistics of `token_ids` (prompt and, after it, what the model generated).

    One forward pass in float32, no generation; the logits are those of plain sdpa, bit for bit. The estimate
    is noted before the run.

    Raises: UsageError for a model whose attention is not plain causal attention, for tokens beyond its
    positions, or segments of another length; LabError, before anything is loaded, when the machine lacks
    the memory, with what would fit.
    """
    raise NotImplementedError
