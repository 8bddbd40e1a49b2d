"""vLLM's own cache manager as a fixture: the oracle of the prefix tests."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import pytest

from tests.support.cache_manager import Oracle, oracle_maker


@pytest.fixture(scope="session")
def oracle() -> Callable[..., Oracle]:
    """Give a maker of oracles: `oracle(block_size, num_blocks, algorithm="sha256", events=False)`."""
    if find_spec("vllm") is None:
        pytest.skip("vllm is not installed: its KVCacheManager is the oracle of this test")
    return oracle_maker()
