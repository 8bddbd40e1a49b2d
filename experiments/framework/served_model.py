"""A really served model as a study's target: started for `engine.*` factors, described, and ended."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

from pydantic import JsonValue

from experiments.framework.arms import canonical
from experiments.framework.provenance import machine_facts, model_facts
from experiments.framework.study import Serve, Served
from serving.call import MeasuredCall
from serving.chat import ChatTokenizer
from serving.client import Client
from serving.engine import BackendName, RunningEngine
from serving.errors import LabError
from serving.launch import LaunchOptions, LaunchPlan, launch, plan_launch
from serving.models import ModelFolder
from serving.probe import ServerFacts, read_server_facts
from serving.progress import Progress, Silent

_DEVICES: Final = {BackendName.CPU: "cpu", BackendName.CUDA: "cuda"}


@dataclass(frozen=True)
class ServedModel:
    """A served model with what its server says of itself."""

    client: Client
    folder: ModelFolder
    block_size: int
    """Tokens per KV-cache block."""
    num_blocks: int
    """Blocks of the pool, the reserved one included."""
    max_model_len: int
    """Prompt and output tokens of one request."""
    dtype: str | None = None
    """Number format of the weights as the engine was told; None: it was not, and follows the model."""
    device: str | None = None
    """Where it computes, in torch's words (cpu, cuda); None: unknown."""

    @cached_property
    def tokenizer(self) -> ChatTokenizer:
        """The model's own, loaded once for all trials."""
        return ChatTokenizer(self.folder.path)


def serve_model(progress: Progress | None = None) -> Serve[ServedModel]:
    """Give the function that starts what the factors `engine.model`, `engine.block_size`,
    `engine.max_model_len` and `engine.kv_cache_bytes` ask for; None leaves a factor to the lab.
    """
    progress = progress or Silent()

    @contextmanager
    def serve(engine: Mapping[str, JsonValue]) -> Iterator[Served[ServedModel]]:
        wanted = {path.removeprefix("engine."): value for path, value in engine.items()}
        plan = plan_launch(LaunchOptions.model_validate({**wanted, "port": 0}), progress=progress)
        with launch(plan, progress=progress) as running:
            facts = read_server_facts(running.base_url, plan.folder.name)
            environment = describe(plan, facts)
            fingerprint = hashlib.sha256(canonical(environment).encode()).hexdigest()
            with Client(running.base_url, server_fingerprint=fingerprint) as client:
                yield Served(_target(client, plan, facts), environment, lambda: _death(running))

    return serve


def _death(engine: RunningEngine) -> str | None:
    try:
        engine.check()
    except LabError as cause:
        return str(cause)
    return None


def describe(plan: LaunchPlan, facts: ServerFacts) -> dict[str, JsonValue]:
    """What was really started: nothing that differs from start to start or names a place on this disk."""
    return {
        "engine": f"vllm {facts.version}",
        "backend": plan.backend.name.value,
        "flags": " ".join(_stable_flags(plan)),
        **model_facts(plan.folder),
        "block_size": facts.block_size,
        "num_blocks": facts.num_blocks,
        **machine_facts(plan.machine),
    }


def _target(client: Client, plan: LaunchPlan, facts: ServerFacts) -> ServedModel:
    if facts.block_size is None or facts.num_blocks is None or facts.max_model_len is None:
        raise LabError(
            f"An exact prediction needs block size, number of blocks and longest request, and the server tells "
            f"{facts.block_size}, {facts.num_blocks} and {facts.max_model_len}: start it with its statistics on."
        )
    return ServedModel(
        client=client,
        folder=plan.folder,
        block_size=facts.block_size,
        num_blocks=facts.num_blocks,
        max_model_len=facts.max_model_len,
        dtype=_flag(plan, "--dtype"),
        device=_DEVICES.get(plan.backend.name),
    )


def _flag(plan: LaunchPlan, name: str) -> str | None:
    """The last value of a flag of the engine's command; the last one wins there too."""
    words = plan.command.argv
    values = [value for word, value in pairwise(words) if word == name]
    return values[-1] if values else None


def _stable_flags(plan: LaunchPlan) -> Iterator[str]:
    """The engine's flags without what differs from start to start or names a place on this disk."""
    words = iter(plan.command.argv[3:])
    for word in words:
        if word in ("--model", "--port", "--host"):
            next(words)
        else:
            yield word


def check_pool(calls: Sequence[MeasuredCall], target: ServedModel) -> None:
    """Refuse a pool that may have evicted blocks of this very trial, for the ceiling would be another one."""
    size = target.block_size
    blocks = sum(
        -(
            -(c.prediction.prompt_tokens - c.prediction.cached_tokens + (c.exchange.output_tokens or 1))
            // size
        )
        for c in calls
    )
    if blocks >= target.num_blocks:
        raise LabError(
            f"This trial has filled {blocks} blocks of {size} tokens and the pool has {target.num_blocks}: "
            "serve with a larger KV cache, or replay fewer calls."
        )
