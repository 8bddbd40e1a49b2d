"""One question put to a model in this process: the packet, the answer, and where the deciding rows looked."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

import numpy as np

from experiments.framework import CallRecord
from experiments.framework.local_model import LocalModel
from serving.assembler import AssemblyRequest, ContextPolicy, HandOff, Packet, assemble
from serving.attention import Capture, CaptureOptions, RowMode, Segments, Statistic, build_segments
from serving.attention.capture import Floats
from serving.attention.outputs import output_marks, output_owners
from serving.chat import ChatRenderer
from serving.client import Exchange
from serving.errors import LabError


def assembled(model: LocalModel, request: AssemblyRequest) -> Packet:
    """The packet of a request; `LabError` where it does not fit the model's window."""
    packet = assemble(request, ContextPolicy(), model.renderer)
    if isinstance(packet, HandOff):
        raise LabError(
            f"Expected a context of at most {packet.budget} tokens, got {packet.needed}: choose a model with a longer "
            "window, or a smaller size."
        )
    return packet


def with_output(segments: Segments, output: Sequence[int], renderer: ChatRenderer) -> Segments:
    """The segments of a prompt, and behind them those of what the model wrote or was made to begin with."""
    owners = [segments.segments[place] for place in segments.by_token]
    owners += output_owners(output, output_marks(renderer.tokenizer))
    return build_segments(owners, prompt_tokens=segments.tokens, sink=False)


def chosen_rows(rows: Sequence[int], *statistics: Statistic) -> CaptureOptions:
    """Exactly these rows, of all layers and heads."""
    return CaptureOptions(rows=RowMode.CHOSEN, chosen=tuple(rows), statistics=frozenset(statistics))


def on(capture: Capture, places: Collection[int], row: int | slice = slice(None)) -> Floats:
    """[L, H]: mass on these segments, mean over the stored rows `row`."""
    chosen = capture.mass[:, :, row][..., sorted(places)].sum(-1)
    mean: Floats = chosen.reshape(*chosen.shape[:2], -1).mean(-1)
    return mean


def tokens_of(segments: Segments, places: Collection[int]) -> int:
    """Tokens of these segments together."""
    return int(segments.sizes[sorted(places)].sum())


def packed(values: Floats) -> str:
    """One number a layer as a short text, for a record's measures."""
    return json.dumps([round(float(value), 5) for value in values])


def unpacked(text: object) -> Floats:
    """What `packed` gives back."""
    if not isinstance(text, str):
        raise LabError(f"A record's layers are a text, got {text!r}.")
    return np.array(json.loads(text), dtype=np.float32)


def call_of(exchange: Exchange) -> CallRecord:
    """What a run keeps of a call in this process: tokens, and the time of the whole answer."""
    return CallRecord(
        prompt_tokens=len(exchange.prompt_token_ids or ()), output_tokens=exchange.output_tokens
    )
