"""Predictions held against vLLM's real schedulers, synchronous and asynchronous, without a model."""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from serving.prefix import Cause, Predictor, PrefixRequest

BLOCK_SIZE = 16
STOP_ID = 1999


class Engine:
    """A scheduler whose steps return scripted tokens; `depth` steps may be under way at once."""

    def __init__(self, scheduler: Any, new_request: Callable[..., Any], depth: int) -> None:
        self._scheduler = scheduler
        self._new_request = new_request
        self._depth = depth
        self._served = 0

    def run(self, request: PrefixRequest, *, max_tokens: int) -> int:
        """Run one request to its end; give the prompt tokens that the cache served."""
        self._served += 1
        name = str(self._served)
        running = self._new_request(name, request, max_tokens)
        self._scheduler.add_request(running)
        sampled = deque(request.output_ids)
        under_way: deque[tuple[Any, bool]] = deque()
        cached: int | None = None
        while not running.is_finished() or under_way:
            if not running.is_finished() and len(under_way) < self._depth:
                step = self._scheduler.schedule()
                if step.scheduled_new_reqs:
                    cached = step.scheduled_new_reqs[0].num_computed_tokens
                if step.total_num_scheduled_tokens > 0:
                    samples = running.num_computed_tokens >= len(request.prompt_ids)
                    under_way.append((step, samples))
                    continue
            step, samples = under_way.popleft()
            # A step that runs on past the stop token samples something that nobody reads.
            tokens = [sampled.popleft() if sampled else 0] if samples else []
            self._scheduler.update_from_output(step, self._output(name, tokens))
        assert cached is not None
        return cached

    def eviction_order(self) -> list[tuple[int, bytes | None]]:
        free = self._scheduler.kv_cache_manager.block_pool.free_block_queue.get_all_free_blocks()
        return [(b.block_id, None if b.block_hash is None else b.block_hash[:-4]) for b in free]

    @staticmethod
    def _output(name: str, tokens: list[int]) -> Any:
        from vllm.v1.outputs import ModelRunnerOutput

        return ModelRunnerOutput(
            req_ids=[name],
            req_id_to_index={name: 0},
            sampled_token_ids=[tokens],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Engine]:
    """Give a maker of engines: `engine(num_blocks, step_tokens, asynchronous)`."""
    if find_spec("vllm") is None:
        pytest.skip("vllm is not installed: its schedulers are the oracle of this test")
    import torch
    from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.request import Request
    from vllm.v1.structured_output import StructuredOutputManager

    folder = tmp_path_factory.mktemp("model")
    _write_config(folder)
    init_none_hash(sha256)
    hasher = get_request_block_hasher(BLOCK_SIZE, sha256)

    def new_request(name: str, request: PrefixRequest, max_tokens: int) -> Any:
        sampling = SamplingParams(max_tokens=max_tokens)
        sampling.update_from_generation_config({}, STOP_ID)
        return Request(
            name,
            list(request.prompt_ids),
            sampling,
            None,
            cache_salt=request.cache_salt,
            block_hasher=hasher,
        )

    def make(num_blocks: int, step_tokens: int, *, asynchronous: bool) -> Engine:
        cache = CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True)
        cache.num_gpu_blocks = num_blocks
        config = VllmConfig(
            model_config=ModelConfig(
                model=str(folder), skip_tokenizer_init=True, dtype="float32", max_model_len=4096
            ),
            cache_config=cache,
            scheduler_config=SchedulerConfig(
                max_num_seqs=16,
                max_num_batched_tokens=step_tokens,
                max_model_len=4096,
                is_encoder_decoder=False,
                async_scheduling=asynchronous,
            ),
        )
        spec = FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32)
        scheduler = (AsyncScheduler if asynchronous else Scheduler)(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(num_blocks, [], [KVCacheGroupSpec(["layer"], spec)]),
            structured_output_manager=StructuredOutputManager(config),
            block_size=BLOCK_SIZE,
        )
        return Engine(scheduler, new_request, depth=2 if asynchronous else 1)

    return make


def _write_config(folder: Path) -> None:
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 2000,
        "max_position_embeddings": 4096,
    }
    (folder / "config.json").write_text(json.dumps(config))


def _trial(rng: random.Random, history: list[tuple[int, ...]], *, ends_by_stop: bool) -> PrefixRequest:
    kept = rng.choice(history)[: rng.randrange(200)] if history else ()
    prompt = kept + tuple(rng.randrange(1000) for _ in range(rng.randrange(1, 70)))
    output = tuple(rng.randrange(1000) for _ in range(rng.randrange(60)))
    return PrefixRequest(
        prompt_ids=prompt[:250],
        output_ids=(*output, STOP_ID if ends_by_stop else 7),
        cache_salt=rng.choice([None, None, "a"]),
    )


def disagreements(
    engine: Callable[..., Engine], *, asynchronous: bool, ends_by_stop: bool, overrun: int
) -> tuple[int, int, int]:
    """Run 150 requests through small pools; count wrong hits, wrong queues and evictions."""
    rng = random.Random(3)
    wrong_hits = wrong_queues = evictions = 0
    for _pool in range(10):
        num_blocks = rng.randrange(22, 30)
        served = engine(num_blocks, rng.choice([32, 64, 4096]), asynchronous=asynchronous)
        predictor = Predictor(BLOCK_SIZE, num_blocks)
        history: list[tuple[int, ...]] = []
        for _turn in range(15):
            request = _trial(rng, history, ends_by_stop=ends_by_stop)
            history.append(request.prompt_ids + request.output_ids)
            prediction = predictor.predict_next(request.prompt_ids, request.cache_salt)
            predictor.record(request.output_ids, overrun_tokens=overrun)
            hit = served.run(request, max_tokens=1000 if ends_by_stop else len(request.output_ids))
            assert predictor.pool is not None
            wrong_hits += hit != prediction.cached_tokens
            wrong_queues += predictor.pool.eviction_order() != served.eviction_order()
            evictions += prediction.causes[Cause.EVICTION] > 0
    return wrong_hits, wrong_queues, evictions


@pytest.mark.parametrize("ends_by_stop", [False, True])
def test_the_synchronous_scheduler_never_overruns(engine: Callable[..., Engine], ends_by_stop: bool) -> None:
    hits, queues, evictions = disagreements(engine, asynchronous=False, ends_by_stop=ends_by_stop, overrun=0)
    assert (hits, queues) == (0, 0)
    assert evictions > 10


@pytest.mark.parametrize("ends_by_stop", [False, True])
def test_the_asynchronous_scheduler_overruns_a_stop_token_by_one_slot(
    engine: Callable[..., Engine], ends_by_stop: bool
) -> None:
    hits, queues, evictions = disagreements(
        engine, asynchronous=True, ends_by_stop=ends_by_stop, overrun=int(ends_by_stop)
    )
    assert (hits, queues) == (0, 0)
    assert evictions > 10


def test_leaving_the_overrun_out_shows_in_the_free_queue(engine: Callable[..., Engine]) -> None:
    _hits, queues, _evictions = disagreements(engine, asynchronous=True, ends_by_stop=True, overrun=0)
    assert queues > 0
