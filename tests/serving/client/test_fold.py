from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.client import Failure, HeldTokens, TextDelta
from serving.client.exchange import Arrival, ErrorKind
from serving.client.fold import ReplyFold
from tests.support.scripts import chunk, usage


def _feed(fold: ReplyFold, *bodies: dict) -> list:
    return [event for at, body in enumerate(bodies, 1) for event in fold.feed(json.dumps(body), at)]


_DELTAS = st.fixed_dictionaries(
    {},
    optional={"content": st.text(max_size=3), "reasoning": st.text(max_size=3), "role": st.just("assistant")},
)


@given(st.lists(st.tuples(_DELTAS, st.lists(st.integers(0, 99), max_size=3))))
def test_the_ids_of_all_events_joined_are_the_output_and_arrivals_count_them_all(chunks):
    fold = ReplyFold()
    events = _feed(fold, *(chunk(delta, ids=ids) for delta, ids in chunks))
    expected = tuple(i for _, ids in chunks for i in ids)
    joined = tuple(i for event in events for i in event.token_ids)
    # A chunk may show text whose tokens came before; ids without text come as held tokens.
    assert joined == expected == (fold.output_token_ids or ())
    assert sum(arrival.tokens for arrival in fold.arrivals) == len(expected)
    assert [arrival.at_ns for arrival in fold.arrivals] == [
        at for at, (_, ids) in enumerate(chunks, 1) if ids
    ]


def test_a_role_chunk_is_no_token():
    fold = ReplyFold()
    assert _feed(fold, chunk({"role": "assistant", "content": ""})) == []
    assert fold.arrivals == []


def test_tokens_held_by_the_parser_are_the_first_token():
    fold = ReplyFold()
    events = _feed(fold, chunk({}, ids=[7]), chunk({"content": "x"}, ids=[8]))
    assert events == [HeldTokens(1, (7,)), TextDelta(2, "x", (8,))]
    assert fold.arrivals[0].at_ns == 1


def test_one_token_without_an_id_makes_the_output_ids_unknown():
    fold = ReplyFold()
    _feed(fold, chunk({"content": "a"}, ids=[1]), chunk({"content": "b"}))
    assert fold.output_token_ids is None
    assert fold.arrivals == [Arrival(at_ns=1, tokens=1), Arrival(at_ns=2, tokens=None)]


def test_without_ids_the_finish_chunk_is_the_last_token_because_its_end_token_is_invisible():
    fold = ReplyFold()
    _feed(fold, chunk({"content": "a"}), chunk({}, finish="stop"))
    assert (fold.last_token_ns, len(fold.arrivals)) == (2, 1)


def test_events_of_one_read_are_one_arrival():
    fold = ReplyFold()
    for ids in ([1], [2, 3]):
        fold.feed(json.dumps(chunk({"content": "x"}, ids=ids)), 5)
    assert fold.arrivals == [Arrival(at_ns=5, tokens=3)]


def test_a_count_that_is_missing_stays_unknown():
    fold = ReplyFold()
    _feed(fold, usage(3, cached=None))
    assert fold.usage.cached_tokens is None
    _feed(fold, usage(3, cached=0))
    assert fold.usage.cached_tokens == 0


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ("{", ErrorKind.BAD_DATA),
        ("7", ErrorKind.BAD_DATA),
        ('{"choices": [3]}', ErrorKind.BAD_DATA),
        ('{"choices": [{"delta": {"content": 3}}]}', ErrorKind.BAD_DATA),
        ('{"choices": [{"token_ids": ["a"]}]}', ErrorKind.BAD_DATA),
        ('{"choices": [{"delta": {"tool_calls": [{"index": "0"}]}}]}', ErrorKind.BAD_DATA),
        ('{"choices": [], "usage": {"prompt_tokens": "many"}}', ErrorKind.BAD_DATA),
        ('{"error": {"message": "boom", "code": 500}}', ErrorKind.SERVER_ERROR),
        ('{"error": "boom"}', ErrorKind.SERVER_ERROR),
        ('{"object": "error", "message": "boom"}', ErrorKind.SERVER_ERROR),
    ],
)
def test_what_is_no_chunk_is_a_typed_failure_that_keeps_the_reply_so_far(data, kind):
    fold = ReplyFold()
    _feed(fold, chunk({"content": "kept"}, ids=[1]))
    events = fold.feed(data, 9)
    assert events == [Failure(9, fold.error)]
    assert fold.error.kind is kind
    assert fold.error.body
    assert (fold.text, fold.output_token_ids) == (["kept"], (1,))
    if kind is ErrorKind.SERVER_ERROR:
        assert "boom" in fold.error.sentence


@given(
    st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_no_json_can_break_the_fold(value):
    ReplyFold().feed(json.dumps({"choices": [{"delta": value, "token_ids": value}], "usage": value}), 1)
