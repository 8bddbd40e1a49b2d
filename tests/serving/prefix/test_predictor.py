from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import UsageError
from serving.prefix import Cause, Predictor, PrefixRequest, Relation, predict


def ids(count: int, start: int = 0) -> tuple[int, ...]:
    """Give `count` ids that no other start shares."""
    return tuple(range(start, start + count))


def cached(requests: list[PrefixRequest], num_blocks: int | None = None) -> list[int]:
    return [p.cached_tokens for p in predict(requests, block_size=16, num_blocks=num_blocks)]


@pytest.mark.parametrize(("prompt_tokens", "hit"), [(15, 0), (16, 0), (17, 16), (64, 48), (65, 64)])
@pytest.mark.parametrize("num_blocks", [None, 100])
def test_a_repeat_hits_whole_blocks_before_its_last_token(
    prompt_tokens: int, hit: int, num_blocks: int | None
) -> None:
    request = PrefixRequest(prompt_ids=ids(prompt_tokens))
    assert cached([request, request], num_blocks) == [0, hit]


@pytest.mark.parametrize(("generated", "hit"), [(0, 32), (1, 32), (8, 32), (9, 48), (10, 48)])
@pytest.mark.parametrize("num_blocks", [None, 100])
def test_the_last_generated_token_is_not_stored(generated: int, hit: int, num_blocks: int | None) -> None:
    first = PrefixRequest(prompt_ids=ids(40), output_ids=ids(generated, 1000))
    turn = PrefixRequest(prompt_ids=first.prompt_ids + first.output_ids + ids(40, 2000))
    assert cached([first, turn], num_blocks) == [0, hit]


def test_the_tail_of_the_older_request_is_evicted_first() -> None:
    a = PrefixRequest(prompt_ids=ids(160))
    b = PrefixRequest(prompt_ids=ids(160, 1000))
    assert cached([a, b, a], num_blocks=16) == [0, 0, 80]


@pytest.mark.parametrize(("num_blocks", "hit"), [(15, 64), (16, 80), (17, 96)])
def test_a_pool_size_wrong_by_one_shows(num_blocks: int, hit: int) -> None:
    a = PrefixRequest(prompt_ids=ids(160))
    b = PrefixRequest(prompt_ids=ids(160, 1000))
    assert cached([a, b, a], num_blocks)[-1] == hit


def test_an_overrun_slot_evicts_one_more_block() -> None:
    a = PrefixRequest(prompt_ids=ids(160))
    b = PrefixRequest(prompt_ids=ids(160, 1000))
    overrun = b.model_copy(update={"overrun_tokens": 1})
    assert cached([a, b, a], num_blocks=16)[-1] == 80
    assert cached([a, overrun, a], num_blocks=16)[-1] == 64


def causes(requests: list[PrefixRequest], num_blocks: int | None = None) -> dict[Cause, int]:
    last = predict(requests, block_size=16, num_blocks=num_blocks)[-1]
    return {cause: tokens for cause, tokens in last.causes.items() if tokens}


def test_a_first_request_is_all_new() -> None:
    assert causes([PrefixRequest(prompt_ids=ids(100))]) == {Cause.NEW: 100}


def test_a_repeat_loses_its_last_token_and_the_rest_of_that_block() -> None:
    request = PrefixRequest(prompt_ids=ids(64))
    assert causes([request, request]) == {Cause.LAST_TOKEN: 1, Cause.BLOCK_ROUNDING: 15}


def test_a_longer_prompt_loses_rounding_and_pays_for_what_is_new() -> None:
    first = PrefixRequest(prompt_ids=ids(40))
    grown = PrefixRequest(prompt_ids=ids(100))
    assert causes([first, grown]) == {Cause.BLOCK_ROUNDING: 8, Cause.NEW: 60}


def test_an_edit_in_the_middle_is_divergence_up_to_the_stored_length() -> None:
    first = PrefixRequest(prompt_ids=ids(100))
    edited = PrefixRequest(prompt_ids=(*ids(40), 9999, *ids(79, 41)))
    assert causes([first, edited]) == {Cause.BLOCK_ROUNDING: 8, Cause.DIVERGENCE: 60, Cause.NEW: 20}


def test_what_only_another_salt_holds_is_lost_to_the_salt() -> None:
    first = PrefixRequest(prompt_ids=ids(100), cache_salt="a")
    other = PrefixRequest(prompt_ids=ids(120), cache_salt="b")
    assert causes([first, other]) == {Cause.SALT: 96, Cause.BLOCK_ROUNDING: 4, Cause.NEW: 20}


def test_a_salt_that_could_not_serve_a_block_explains_nothing() -> None:
    mine = PrefixRequest(prompt_ids=ids(20), cache_salt="a")
    other = PrefixRequest(prompt_ids=ids(30), cache_salt="b")
    last = predict([mine, other, PrefixRequest(prompt_ids=ids(31), cache_salt="a")], block_size=16)[-1]
    assert last.causes[Cause.SALT] == 0
    assert last.nearest is not None
    assert (last.nearest.index, last.nearest.same_salt) == (0, True)


def test_what_an_endless_pool_would_hold_is_lost_to_eviction() -> None:
    a = PrefixRequest(prompt_ids=ids(160))
    b = PrefixRequest(prompt_ids=ids(160, 1000))
    assert causes([a, b, a], num_blocks=16) == {
        Cause.EVICTION: 64,
        Cause.LAST_TOKEN: 1,
        Cause.BLOCK_ROUNDING: 15,
    }


def test_a_prompt_within_one_block_has_a_ceiling_of_zero() -> None:
    short, longer = PrefixRequest(prompt_ids=ids(16)), PrefixRequest(prompt_ids=ids(17))
    assert [p.ceiling_tokens for p in predict([short, longer], block_size=16)] == [0, 16]


def test_the_nearest_request_is_the_latest_of_those_that_share_most() -> None:
    turn_1 = PrefixRequest(prompt_ids=ids(30), output_ids=ids(11, 30))
    turn_2 = PrefixRequest(prompt_ids=ids(60), output_ids=ids(11, 60))
    unrelated = PrefixRequest(prompt_ids=ids(50, 5000))
    edited = PrefixRequest(prompt_ids=(*ids(40), *ids(40, 7000)))
    nearest = predict([turn_1, turn_2, unrelated, edited], block_size=16)[-1].nearest
    assert nearest is not None
    assert (nearest.index, nearest.shared_tokens, nearest.stored_tokens) == (1, 40, 70)
    assert nearest.relation is Relation.DIVERGES


@pytest.mark.parametrize(
    ("prompt", "relation"),
    [
        (ids(40), Relation.CONTAINED),
        (ids(39), Relation.CONTAINED),
        (ids(41), Relation.EXTENDS),
        ((*ids(39), 9), Relation.DIVERGES),
        (ids(40, 5000), Relation.DIVERGES),
    ],
)
def test_the_relation_to_the_nearest_request_is_named(prompt: tuple[int, ...], relation: Relation) -> None:
    nearest = predict([PrefixRequest(prompt_ids=ids(40)), PrefixRequest(prompt_ids=prompt)], block_size=16)[
        -1
    ].nearest
    assert nearest is not None
    assert nearest.relation is relation


_REQUESTS = st.lists(
    st.builds(
        PrefixRequest,
        prompt_ids=st.lists(st.integers(0, 1), min_size=1, max_size=24).map(tuple),
        output_ids=st.lists(st.integers(0, 1), max_size=6).map(tuple),
        cache_salt=st.sampled_from([None, "a"]),
    ),
    min_size=1,
    max_size=8,
)


@given(requests=_REQUESTS, block_size=st.integers(1, 5), slack=st.none() | st.integers(0, 10))
def test_the_causes_sum_to_what_was_not_cached(
    requests: list[PrefixRequest], block_size: int, slack: int | None
) -> None:
    largest = max(-(-r.stored_tokens // block_size) for r in requests)
    num_blocks = None if slack is None else largest + 1 + slack
    for request, p in zip(
        requests, predict(requests, block_size=block_size, num_blocks=num_blocks), strict=True
    ):
        assert p.prompt_tokens == len(request.prompt_ids)
        assert set(p.causes) == set(Cause)
        assert min(p.causes.values()) >= 0
        assert sum(p.causes.values()) == p.prompt_tokens - p.cached_tokens
        assert p.cached_tokens <= p.ceiling_tokens


@given(requests=_REQUESTS)
def test_the_tree_finds_what_comparing_every_pair_finds(requests: list[PrefixRequest]) -> None:
    predictions = predict(requests, block_size=1)
    for i, (request, prediction) in enumerate(zip(requests, predictions, strict=True)):
        shared = {
            j: _shared(request.prompt_ids, earlier)
            for j, earlier in enumerate(requests[:i])
            if earlier.cache_salt == request.cache_salt
        }
        endless = max(shared.values(), default=0)
        assert prediction.cached_tokens == min(endless, len(request.prompt_ids) - 1)
        nearest = prediction.nearest
        if nearest is not None and nearest.same_salt:
            assert nearest.index == max(j for j, tokens in shared.items() if tokens == endless)
            assert nearest.shared_tokens == endless
            assert nearest.stored_tokens == requests[nearest.index].stored_tokens


def _shared(prompt: tuple[int, ...], earlier: PrefixRequest) -> int:
    stored = (earlier.prompt_ids + earlier.output_ids)[: earlier.stored_tokens]
    pairs = zip(prompt, stored, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(prompt), len(stored)))


def test_a_request_beyond_the_pool_is_refused_with_both_numbers() -> None:
    with pytest.raises(UsageError, match="needs 4 blocks, and 3 of 4 can be used"):
        predict([PrefixRequest(prompt_ids=ids(49))], block_size=16, num_blocks=4)


def test_predicting_twice_without_recording_is_refused() -> None:
    predictor = Predictor(16)
    predictor.predict_next(ids(20))
    with pytest.raises(UsageError, match="not recorded"):
        predictor.predict_next(ids(20))


def test_recording_before_predicting_is_refused() -> None:
    with pytest.raises(UsageError, match="predict_next"):
        Predictor(16).record()


def test_an_abandoned_request_leaves_nothing_behind() -> None:
    predictor = Predictor(16, 100)
    predictor.predict_next(ids(40))
    predictor.abandon()
    again = predictor.predict_next(ids(40))
    assert (again.index, again.cached_tokens, again.nearest) == (0, 0, None)


@pytest.mark.parametrize("bad", [(-1,), (2**31,), ()])
def test_ids_that_no_vocabulary_has_are_refused(bad: tuple[int, ...]) -> None:
    with pytest.raises(UsageError):
        Predictor(16).predict_next(bad)
