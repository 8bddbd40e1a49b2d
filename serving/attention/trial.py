"""How long a capture will take on this machine now: one layer of the model and one tile, timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Final

import torch
from transformers import AutoConfig

from serving.attention.model import build_random
from serving.attention.plan import HeadShape, Plan, make_plan
from serving.attention.recorder import Recorder
from serving.models import ModelFolder

_TOKENS: Final = 256
_ROWS: Final = 64
_REPEATS: Final = 3


def trial_cpu_seconds(folder: ModelFolder, plan: Plan) -> float:
    """Processor seconds of the model's pass and the statistics; loading left out.

    The linear part is timed on a model of one layer with random weights, attention and statistics on a few
    rows in the middle of the sequence, where a row has the mean length. Takes about a second.
    """
    layers, tokens = plan.shape.num_layers, plan.tokens
    captured = torch.from_numpy(plan.captured)
    most = min(_ROWS, len(captured))
    sample = captured[(len(captured) - most) // 2 :][:most]
    linear = _linear_seconds(folder, min(_TOKENS, tokens)) / min(_TOKENS, tokens)
    attention = _attention_seconds(plan.shape, min(_ROWS, tokens), tokens // 2 + 1) / min(_ROWS, tokens)
    watched = _statistics_seconds(plan, sample) / most
    return (linear + attention) * layers * tokens + watched * len(plan.layers) * len(captured)


def _linear_seconds(folder: ModelFolder, tokens: int) -> float:
    """One layer over a few tokens; what their short attention costs is a few percent."""
    config = AutoConfig.from_pretrained(folder.path, trust_remote_code=False)
    config.num_hidden_layers = 1
    config.vocab_size = 8
    config.pad_token_id = None
    if getattr(config, "layer_types", None) is not None:
        config.layer_types = config.layer_types[:1]
    model = build_random(config)
    ids = torch.zeros(1, tokens, dtype=torch.int64)
    return _timed(lambda: model(ids, use_cache=False, logits_to_keep=1))


def _attention_seconds(shape: HeadShape, rows: int, keys: int) -> float:
    query = _numbers(1, shape.num_heads, rows, shape.head_dim)
    key = _numbers(1, shape.num_kv_heads, keys, shape.head_dim)
    attend = torch.nn.functional.scaled_dot_product_attention
    return _timed(lambda: attend(query, key, key, enable_gqa=shape.group > 1))


def _statistics_seconds(plan: Plan, positions: torch.Tensor) -> float:
    """A tile or two of all captured heads of one layer, with the plan's own tables and statistics."""
    shape = plan.shape
    one = make_plan(shape, plan.segments, plan.options.model_copy(update={"layers": (0,)}))
    recorder = Recorder(one)
    first = int(positions[0])
    query = _numbers(shape.num_heads, int(positions[-1]) + 1 - first, shape.head_dim)
    key = _numbers(shape.num_kv_heads, int(positions[-1]) + 1, shape.head_dim)
    return _timed(lambda: recorder.rehearse(query, key, positions, first))


def _numbers(*shape: int) -> torch.Tensor:
    """Random numbers that leave the process's own randomness alone."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def _timed(work: Callable[[], object]) -> float:
    """The median of a few runs on one thread, after one that pays for set-up.

    One thread, because waiting at barriers counts as processor time, and on a busy machine exceeds the work.
    """
    spent = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            work()
            for _ in range(_REPEATS):
                start = time.process_time()
                work()
                spent.append(time.process_time() - start)
    finally:
        torch.set_num_threads(threads)
    return statistics.median(spent)
