"""What a capture will need, before anything is loaded: memory from formulas, time from a short trial."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Final

import psutil

from serving.attention.options import CaptureOptions, RowMode
from serving.attention.plan import TILE_FLOATS, Plan, Size, array_shapes, bin_width
from serving.engine.config import Dtype
from serving.engine.machine import inspect_machine
from serving.engine.shape import ModelShape
from serving.errors import LabError
from serving.models import ModelFolder, Weights

_GIB: Final = 1 << 30

LIBRARIES_BYTES: Final = 400 << 20
"""A process with torch and transformers imported, measured on Linux (380 MiB) and a little room."""

_KERNEL_BYTES: Final = 40 << 20
"""What the matrix libraries keep for themselves once they have run, measured with two threads."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Peak bytes of a process that makes one capture, by part."""

    libraries: int
    weights: int
    loading: int
    """On top of the weights while they are read (another number format, a second copy)."""
    activations: int
    """Of the model itself, a KV cache included where the prefill is chunked."""
    arrays: int
    """The capture."""
    working: int
    """Tiles and tables of the statistics."""

    @property
    def total(self) -> int:
        """At the peak: what is needed to load is free again when the model runs."""
        running = self.activations + self.arrays + self.working
        return self.libraries + self.weights + max(self.loading, running)

    @property
    def added(self) -> int:
        """What observing adds to running the model."""
        return self.arrays + self.working

    def in_words(self) -> str:
        """The parts in GiB, the large ones of a decision first."""
        return (
            f"{self.total / _GIB:.2f} GiB (weights {self.weights / _GIB:.2f}, activations "
            f"{self.activations / _GIB:.2f}, capture {self.added / _GIB:.2f}, libraries "
            f"{self.libraries / _GIB:.2f})"
        )


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one capture will take on this machine."""

    memory: Memory
    scores: int
    """Query–key pairs that are looked at: heads × layers × pairs."""
    flop: float
    """Of model and statistics together."""
    cpu_seconds: float | None
    """Processor time, all threads together; None where no trial was made."""

    def in_words(self) -> str:
        """One line for a person who waits."""
        time = "" if self.cpu_seconds is None else f", about {self.cpu_seconds:,.0f} s of processor time"
        return f"{self.flop / 1e12:.2f} TFLOP, {self.memory.in_words()}{time}"


def estimate_memory(
    folder: ModelFolder, shape: ModelShape, size: Size, options: CaptureOptions, threads: int
) -> Memory:
    """Peak bytes by part; `threads` is how many cores will work (each has its own tile)."""
    weights = 4 * shape.parameters
    random = folder.weights is Weights.DUMMY
    embedding = 4 * shape.vocab_size * shape.hidden_size
    stored = 0 if random or shape.stored_dtype is Dtype.FLOAT32 else weights // 2
    pass_tokens = min(size.tokens, options.chunk or size.tokens)
    return Memory(
        libraries=LIBRARIES_BYTES,
        weights=weights,
        # A random model is built with an output matrix before that is tied to the embedding; a stored one is
        # mapped from its file, whose pages count until all are converted.
        loading=embedding if random and shape.tie_word_embeddings else stored,
        activations=_KERNEL_BYTES + _activations(shape, pass_tokens) + _cache(shape, size.tokens, options),
        arrays=sum(4 * prod(dimensions) for dimensions in array_shapes(size, options).values()),
        working=_working(shape, size, options, threads),
    )


def _activations(shape: ModelShape, tokens: int) -> int:
    """Of one decoder layer: either its attention or its feed-forward part is the larger."""
    queries = shape.num_attention_heads * shape.head_dim
    keys = shape.num_key_value_heads * shape.head_dim
    attention = 4 * queries + 4 * keys
    feed_forward = 3 * shape.intermediate_size
    return 4 * (tokens * (3 * shape.hidden_size + max(attention, feed_forward)) + 2 * shape.vocab_size)


def _cache(shape: ModelShape, tokens: int, options: CaptureOptions) -> int:
    """Keys and values of all layers, and the copy that growing one layer's makes."""
    if options.chunk is None:
        return 0
    layer = 2 * 4 * shape.num_key_value_heads * shape.head_dim * tokens
    return (shape.num_hidden_layers + 1) * layer + options.chunk * tokens


def _working(shape: ModelShape, size: Size, options: CaptureOptions, threads: int) -> int:
    padded = size.tokens + bin_width(size.tokens, options)
    tile = 2 * max(TILE_FLOATS, padded)
    keys = padded * shape.head_dim
    columns = padded * size.orders * size.parts
    return 4 * (min(threads, size.heads) * (tile + keys) + columns)


def estimate_flop(shape: ModelShape, plan: Plan) -> tuple[int, float]:
    """Scores that the statistics look at, and the FLOP of model and statistics together."""
    tokens = plan.tokens
    scores = int((plan.captured + 1).sum()) * len(plan.heads) * len(plan.layers)
    embeddings = shape.vocab_size * shape.hidden_size * (1 if shape.tie_word_embeddings else 2)
    linear = 2.0 * (shape.parameters - embeddings) * tokens
    attention = 2.0 * shape.head_dim * tokens * tokens * shape.num_attention_heads * shape.num_hidden_layers
    columns = plan.size.parts * plan.size.orders
    return scores, linear + attention + 2.0 * scores * (shape.head_dim + columns)


def refuse_beyond(
    need: Memory, free: int, folder: ModelFolder, shape: ModelShape, plan: Plan, threads: int
) -> None:
    """Raise LabError when `need` is more than the `free` bytes, naming what would fit."""
    if need.total <= free:
        return

    def fits(size: Size, options: CaptureOptions) -> bool:
        return estimate_memory(folder, shape, size, options, threads).total <= free

    found = list(_what_fits(plan, fits))
    advice = "; ".join(found) if found else "no capture of this model does; take a smaller model"
    raise LabError(
        f"This capture of {folder.name} needs {need.in_words()}, and {free / _GIB:.2f} GiB are free. "
        f"What would fit: {advice}."
    )


def _what_fits(plan: Plan, fits: Callable[[Size, CaptureOptions], bool]) -> Iterator[str]:
    """Changes that suffice alone, the one that loses least first."""
    size, options = plan.size, plan.options
    pooled = options.model_copy(update={"rows": RowMode.POOLED, "chosen": ()})
    if options.rows is RowMode.EVERY and fits(replace(size, rows=min(size.rows, options.row_bins)), pooled):
        yield f"rows='pooled' ({options.row_bins} stored rows)"
    if layers := _largest(size.layers, lambda count: fits(replace(size, layers=count), options)):
        yield f"{layers} of the {size.layers} layers a run"
    chunked = options.model_copy(update={"chunk": 512})
    if options.chunk is None and fits(size, chunked):
        yield "chunk=512"
    if tokens := _largest(size.tokens, lambda count: fits(_shorter(size, count), options)):
        yield f"the same with {tokens:,} of the {size.tokens:,} tokens"


def _shorter(size: Size, tokens: int) -> Size:
    return replace(size, tokens=tokens, rows=max(1, size.rows * tokens // size.tokens))


def _largest(below: int, fits: Callable[[int], bool]) -> int:
    """The largest count under `below` that fits, 0 for none; memory grows with the count."""
    low, high = 0, below
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def free_bytes() -> int:
    """What a capture in this process may take: free memory, and what its libraries hold already."""
    held = int(psutil.Process().memory_info().rss)
    return inspect_machine().memory_available + min(held, LIBRARIES_BYTES)
