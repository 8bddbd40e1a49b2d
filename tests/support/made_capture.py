"""A capture worked out the slow way: whole matrices of made-up attention, every statistic summed from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from serving.attention import Capture, CaptureOptions, RowMode, Segment, SegmentKind, Segments, build_segments
from serving.attention.capture import ModelIdentity

IDENTITY = ModelIdentity(
    name="made-up",
    architecture="MadeForCausalLM",
    weights_sha256=None,
    random_seed=0,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    dtype="float32",
)

PARTS = (
    ("system", "system prompt", SegmentKind.SYSTEM, 6),
    ("framing", "template framing", SegmentKind.FRAMING, 2),
    ("tool:read", "read", SegmentKind.TOOL, 5),
    ("turn-000", "user, turn 1", SegmentKind.USER, 4),
    ("turn-001#call", "read call, turn 1", SegmentKind.TOOL_CALL, 2),
    ("framing", "template framing", SegmentKind.FRAMING, 1),
    ("turn-001#result", "read result, turn 1", SegmentKind.TOOL_RESULT, 9),
    ("status-bar", "status bar", SegmentKind.STATUS_BAR, 2),
    ("output#thinking", "thinking", SegmentKind.THINKING, 6),
    ("output#answer", "answer", SegmentKind.ANSWER, 4),
)
"""Id, label, kind, and tokens (times a scale): a small agent's context."""


def made_segments(scale: int = 1, parts: Sequence[tuple[str, str, SegmentKind, int]] = PARTS) -> Segments:
    owners = [
        Segment(id=identity, label=label, kind=kind)
        for identity, label, kind, size in parts
        for _ in range(size * scale)
    ]
    written = sum(
        size * scale for *_, kind, size in parts if kind in (SegmentKind.THINKING, SegmentKind.ANSWER)
    )
    return build_segments(owners, prompt_tokens=len(owners) - written)


def made_attention(layers: int, heads: int, tokens: int, seed: int = 0) -> NDArray[np.float64]:
    """[L, H, T, T]: causal rows that sum to 1, with a sink, neighbours and chance."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(layers, heads, tokens, tokens))
    scores[..., 0] += 3
    back = np.arange(tokens)[:, None] - np.arange(tokens)
    scores += rng.uniform(0, 3, (layers, heads, 1, 1)) * np.exp(-np.abs(back) / 5)
    weights = np.where(back < 0, 0, np.exp(scores))
    return weights / weights.sum(-1, keepdims=True)


def made_capture(
    segments: Segments | None = None, *, layers: int = 3, heads: int = 4, seed: int = 0, bins: int = 8
) -> tuple[Capture, NDArray[np.float64]]:
    """A capture of every row, and the matrices behind it."""
    segments = segments or made_segments()
    tokens = segments.tokens
    matrices = made_attention(layers, heads, tokens, seed)
    owners = np.eye(len(segments.segments))[segments.by_token]
    mass = matrices @ owners
    rows_in = owners.sum(0)
    between = np.einsum("lhts,tr->lhrs", mass, owners) / np.maximum(rows_in, 1)[:, None]
    back = np.arange(tokens)[:, None] - np.arange(tokens)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(matrices > 0, matrices * np.log(matrices), 0).sum(-1)
    fine = binned(matrices, -(-tokens // (2 * bins)))

    def floats(values: NDArray[np.float64]) -> NDArray[np.float32]:
        return values.astype(np.float32)

    capture = Capture(
        model=IDENTITY.model_copy(update={"num_layers": layers, "num_heads": heads}),
        options=CaptureOptions(rows=RowMode.EVERY, heatmap_bins=bins),
        segments=segments,
        token_ids=tuple(range(tokens)),
        pieces=tuple(f" w{token}" for token in range(tokens)),
        layers=tuple(range(layers)),
        heads=tuple(range(heads)),
        row_starts=np.arange(tokens),
        row_ends=np.arange(tokens) + 1,
        mass=floats(mass),
        sink=floats(matrices[..., 0]),
        between=floats(between),
        rows_in=rows_in.astype(np.int64),
        entropy=floats(entropy),
        distance=floats((matrices * back).sum(-1)),
        received=floats(matrices.sum(2)),
        heatmap=floats(binned(matrices, 2 * -(-tokens // (2 * bins)))),
        heatmap_mean=floats(fine.mean(1)),
        heatmap_max=floats(fine.max(1)),
        baseline=floats(np.broadcast_to(between.mean((0, 1), keepdims=True), between.shape) / 2),
    )
    return capture, matrices


def binned(matrices: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Keys of a bin added up, rows of a bin averaged."""
    tokens = matrices.shape[-1]
    starts = np.arange(0, tokens, width)
    keys = np.add.reduceat(matrices, starts, axis=-1)
    rows = np.add.reduceat(keys, starts, axis=-2)
    return rows / np.minimum(width, tokens - starts)[:, None]
