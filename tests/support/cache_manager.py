"""vLLM's own cache manager, run in process without a model: the oracle of predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from serving.prefix import PrefixRequest


@dataclass
class Oracle:
    """One `KVCacheManager` with one full-attention group, driven as the scheduler drives it."""

    manager: Any
    new_request: Callable[..., Any]
    names: count[int] = field(default_factory=count)
    keys: list[bytes] = field(default_factory=list)
    """Of the last request that ran to its end: one for each full block of its prompt and output."""

    def start(self, request: PrefixRequest) -> Any:
        """Make the engine's request object; nothing is looked up or allotted yet."""
        return self.new_request(str(next(self.names)), request)

    def admit(self, running: Any, chunk: int | None = None) -> int | None:
        """Look the prompt up and compute all of it, or a first chunk; give the hit, or None without room."""
        blocks, hit, _boundary = self.manager.get_computed_blocks(running)
        new = running.num_prompt_tokens - hit
        new = new if chunk is None else min(new, chunk)
        if self.manager.allocate_slots(running, new, hit, blocks) is None:
            return None
        running.num_computed_tokens = hit + new
        return hit

    def compute(self, running: Any, tokens: int) -> None:
        """Compute some more tokens: another prefill chunk, or the token that was sampled last."""
        assert self.manager.allocate_slots(running, tokens) is not None
        running.num_computed_tokens += tokens

    def run(self, request: PrefixRequest) -> int:
        """Run a request from beginning to end and give the prompt tokens that the cache served."""
        running = self.start(request)
        hit = self.admit(running)
        assert hit is not None
        for token in request.output_ids[:-1]:
            running.append_output_token_ids(token)
            self.compute(running, 1)
        if request.overrun_tokens:
            # An asynchronous scheduler allots the next step before it has seen the last token.
            assert self.manager.allocate_slots(running, request.overrun_tokens) is not None
        running.append_output_token_ids(list(request.output_ids[-1:]))
        self.manager.free(running)
        self.keys = list(running.block_hashes)
        return hit

    def eviction_order(self) -> list[tuple[int, bytes | None]]:
        """List (block number, key) of the free queue, as `BlockPool.eviction_order` does."""
        free = self.manager.block_pool.free_block_queue.get_all_free_blocks()
        return [(b.block_id, None if b.block_hash is None else b.block_hash[:-4]) for b in free]


def oracle_maker() -> Callable[..., Oracle]:
    """Give a maker of oracles: `make(block_size, num_blocks, algorithm="sha256", events=False)`."""
    import torch
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.request import Request

    sampling = SamplingParams(max_tokens=1)

    def make(block_size: int, num_blocks: int, algorithm: str = "sha256", *, events: bool = False) -> Oracle:
        hash_function = get_hash_fn_by_name(algorithm)
        init_none_hash(hash_function)
        hasher = get_request_block_hasher(block_size, hash_function)
        spec = FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=1, dtype=torch.float32)
        manager = KVCacheManager(
            KVCacheConfig(num_blocks, [], [KVCacheGroupSpec(["layer"], spec)]),
            max_model_len=1_000_000,
            scheduler_block_size=block_size,
            hash_block_size=block_size,
            enable_kv_cache_events=events,
        )

        def new_request(name: str, request: PrefixRequest) -> Any:
            return Request(
                name,
                list(request.prompt_ids),
                sampling,
                None,
                cache_salt=request.cache_salt,
                block_hasher=hasher,
            )

        return Oracle(manager, new_request)

    return make
