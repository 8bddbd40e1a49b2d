from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.latency.steady import settle
from experiments.latency.workload import (
    Asking,
    History,
    Shape,
    check_reuse,
    conversations,
    fed_back,
    next_request,
    poisson_arrivals,
    reusable,
)
from serving.client import CompletionRequest, Surface
from serving.prefix.prediction import hit_tokens
from tests.support.made_load import exchange_of

ASKING = Asking(model="m", surface=Surface.TOKEN_IN, output_tokens=3, salt="s", is_vllm=True)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 100), st.integers(1, 60), st.integers(0, 5))
def test_arrivals_rise_and_are_the_same_for_the_same_seed(rate: float, count: int, seed: int) -> None:
    due = poisson_arrivals(rate, count, [seed])
    assert len(due) == count
    assert list(due) == sorted(due)
    assert due[0] > 0
    assert due == poisson_arrivals(rate, count, [seed])


def test_arrivals_have_the_mean_and_the_spread_of_a_poisson_process() -> None:
    gaps = np.diff((0.0, *poisson_arrivals(4.0, 20_000, [0])))
    assert gaps.mean() == pytest.approx(0.25, rel=0.03)
    assert gaps.std() == pytest.approx(0.25, rel=0.03)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 300), st.integers(0, 100), st.sampled_from([16, 32, 128]), st.integers(0, 3))
def test_the_reuse_of_whole_blocks_is_always_within_the_bound(
    prompt: int, percent: int, block: int, seed: int
) -> None:
    shape = Shape(prompt_tokens=prompt, output_tokens=1, hit_percent=percent)
    first, other = (one.pieces[0] for one in conversations(shape, 2, 30_000, [seed]))
    common = next((place for place, (a, b) in enumerate(zip(first, other, strict=True)) if a != b), prompt)
    assert common >= shape.shared_tokens
    cached = hit_tokens(shape.shared_tokens, prompt, block)
    assert check_reuse(shape.shared_tokens, cached, block)
    assert abs(percent / 100 * prompt - cached) <= block + 1e-9  # what is asked, to the block


def test_reuse_of_more_than_was_asked_or_of_a_block_too_few_is_found() -> None:
    assert check_reuse(64, 64, 32)
    assert check_reuse(64, 32, 32)
    assert not check_reuse(64, 96, 32)
    assert not check_reuse(64, 31, 32)
    assert not check_reuse(0, 32, 32)


def test_a_further_turn_repeats_the_models_real_answer() -> None:
    request, history = next_request(ASKING, History(), (1, 2))
    answered = fed_back(history, exchange_of(arrivals_s=(1, 2, 3)))
    following, _ = next_request(ASKING, answered, (5,))
    assert isinstance(request, CompletionRequest) and isinstance(following, CompletionRequest)
    assert following.prompt == (*request.prompt, 7, 7, 7, 1005)
    assert reusable(Shape(prompt_tokens=2, output_tokens=3), answered) == 5


def test_a_further_turn_of_a_chat_holds_the_answer_as_the_assistants_message() -> None:
    asking = Asking(model="m", surface=Surface.CHAT, output_tokens=3, salt=None, is_vllm=False)
    request, history = next_request(asking, History(), (0, 1))
    following, _ = next_request(asking, fed_back(history, exchange_of(arrivals_s=(1,))), (2,))
    messages = following.body()["messages"]
    assert isinstance(messages, list)
    assert [message["role"] for message in messages if isinstance(message, dict)] == [
        "user",
        "assistant",
        "user",
    ]
    assert "cache_salt" not in request.body() and "ignore_eos" not in request.body()


def test_a_slow_beginning_is_cut_off() -> None:
    rng = np.random.default_rng(0)
    series = [*(10.0, 6.0, 3.0), *rng.normal(1.0, 0.05, size=40)]
    found = settle(series)
    assert found.reached is True
    assert 3 <= found.dropped <= 20


def test_a_series_that_grows_to_its_end_never_settles() -> None:
    found = settle([float(value) for value in range(40)])
    assert found.reached is False
    assert found.dropped == 0


def test_noise_is_not_called_unsteady() -> None:
    rng = np.random.default_rng(0)
    found = [settle(1 + rng.exponential(1.0, size=16)) for _ in range(100)]
    assert sum(one.reached is False for one in found) <= 2


def test_a_queue_that_grows_slowly_through_the_noise_is_unsteady() -> None:
    rng = np.random.default_rng(0)
    found = [settle(np.linspace(1, 2, 64) + rng.normal(0, 0.15, size=64)) for _ in range(20)]
    assert all(one.reached is False and one.dropped == 0 for one in found)


def test_equal_latencies_are_steady() -> None:
    found = settle([1.0] * 20)
    assert (found.dropped, found.reached) == (0, True)


def test_a_short_series_tells_nothing() -> None:
    assert settle([1.0] * 5).reached is None
