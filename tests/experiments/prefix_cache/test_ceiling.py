from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.framework import CallRecord, InequalityError, TrialRecord
from experiments.prefix_cache.ceiling import ceilings, check_ceiling
from serving.prefix import Predictor
from tests.support.made_record import made_record


def call(prompt: int, cached: int | None = None, output: int | None = 1) -> CallRecord:
    return CallRecord(prompt_tokens=prompt, cached_tokens=cached, output_tokens=output)


def record(*calls: CallRecord, arm: str = "append-only", block_size: int | None = 32) -> TrialRecord:
    measures = {} if block_size is None else {"block_size": block_size}
    return made_record("prefix-cache", arm, "file-tour-2", 0, measures, calls=calls)


def test_a_repeat_of_64_tokens_can_hit_48_and_one_of_65_can_hit_64() -> None:
    assert ceilings([call(64), call(64)], 16) == (0, 48)
    assert ceilings([call(65), call(65)], 16) == (0, 64)


def test_what_was_generated_is_stored_but_for_its_last_token() -> None:
    assert ceilings([call(40, output=8), call(60)], 16) == (0, 32)
    assert ceilings([call(40, output=9), call(60)], 16) == (0, 48)


def test_a_shorter_prompt_is_bound_by_its_own_length() -> None:
    assert ceilings([call(100), call(40)], 16) == (0, 32)


def test_no_bound_is_made_up_where_a_length_is_unknown() -> None:
    assert ceilings([call(64), call(64, output=None)], 16) is None
    assert ceilings([CallRecord(output_tokens=1)], 16) is None


ids = st.integers(0, 1)
requests = st.lists(
    st.tuples(st.lists(ids, min_size=1, max_size=40), st.lists(ids, min_size=1, max_size=9)),
    min_size=1,
    max_size=6,
)


@given(requests, st.sampled_from([1, 2, 4, 16]))
def test_no_request_is_ever_predicted_above_the_ceiling(
    asked: list[tuple[list[int], list[int]]], block_size: int
) -> None:
    predictor = Predictor(block_size, None)
    calls = []
    for prompt, output in asked:
        cached = predictor.predict_next(prompt, "s").cached_tokens
        predictor.record(output)
        calls.append(call(len(prompt), cached, len(output)))
    check_ceiling(record(*calls, block_size=block_size), reached=False)


@given(st.lists(st.lists(ids, min_size=1, max_size=40), min_size=1, max_size=6), st.sampled_from([1, 4, 16]))
def test_a_run_that_only_appends_is_at_its_ceiling(pieces: list[list[int]], block_size: int) -> None:
    predictor = Predictor(block_size, None)
    prompt: list[int] = []
    calls = []
    for piece in pieces:
        prompt = prompt + piece
        cached = predictor.predict_next(prompt, "s").cached_tokens
        predictor.record([0])
        calls.append(call(len(prompt), cached))
    check_ceiling(record(*calls, block_size=block_size), reached=True)


def test_reuse_above_the_ceiling_or_a_base_below_it_stops_the_run() -> None:
    with pytest.raises(InequalityError, match="at most 64"):
        check_ceiling(record(call(65, 0), call(99, 96)), reached=False)
    with pytest.raises(InequalityError, match="exactly 64"):
        check_ceiling(record(call(65, 0), call(99, 32)), reached=True)
    check_ceiling(record(call(65, 0), call(99, 32)), reached=False)


def test_a_run_that_did_not_keep_its_block_size_is_not_judged() -> None:
    check_ceiling(record(call(65, 0), call(99, 96), block_size=None), reached=True)
