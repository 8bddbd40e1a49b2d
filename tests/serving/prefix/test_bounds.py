from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from serving.prefix import PrefixRequest, predict
from serving.prefix.bounds import TimedRequest, bound_cached


def timed(prompt: tuple[int, ...], sent: float, first_token: float, finished: float) -> TimedRequest:
    request = PrefixRequest(prompt_ids=prompt, output_ids=(7, 7))
    return TimedRequest(request=request, sent=sent, first_token=first_token, finished=finished)


def ends(requests: list[TimedRequest], num_blocks: int | None = None) -> list[tuple[int, int]]:
    return [(b.low, b.high) for b in bound_cached(requests, block_size=16, num_blocks=num_blocks)]


PROMPT = tuple(range(65))


def test_two_that_start_together_may_or_may_not_share() -> None:
    assert ends([timed(PROMPT, 0, 2, 3), timed(PROMPT, 0, 2, 3)]) == [(0, 64), (0, 64)]


def test_a_prompt_whose_first_token_has_come_is_there() -> None:
    assert ends([timed(PROMPT, 0, 1, 9), timed(PROMPT, 2, 3, 4)]) == [(0, 0), (64, 64)]


def test_one_sent_after_the_first_token_cannot_have_helped() -> None:
    assert ends([timed(PROMPT, 0, 1, 9), timed(PROMPT, 2, 3, 9)])[0] == (0, 0)


def test_a_pool_that_may_have_evicted_promises_nothing() -> None:
    other = tuple(range(1000, 1065))
    requests = [timed(PROMPT, 0, 1, 2), timed(other, 3, 4, 5), timed(PROMPT, 6, 7, 8)]
    assert ends(requests, num_blocks=11)[2] == (64, 64)
    assert ends(requests, num_blocks=10)[2] == (0, 64)


def test_times_out_of_order_are_refused() -> None:
    with pytest.raises(ValidationError, match="sent ≤ first_token ≤ finished"):
        timed(PROMPT, 2, 1, 3)


@given(
    prompts=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=12).map(tuple), min_size=1, max_size=8),
    block_size=st.integers(1, 4),
)
def test_bounds_of_requests_in_turn_are_the_prediction(
    prompts: list[tuple[int, ...]], block_size: int
) -> None:
    requests = [timed(prompt, 3 * i, 3 * i + 1, 3 * i + 2) for i, prompt in enumerate(prompts)]
    predictions = predict([r.request for r in requests], block_size=block_size)
    for bound, prediction in zip(bound_cached(requests, block_size=block_size), predictions, strict=True):
        assert bound.exact
        assert bound.low == prediction.cached_tokens
