"""Segments are a partition, and say so when they are not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.attention import SINK, Run, Segment, SegmentKind, Segments, build_segments, plain_segments
from serving.errors import UsageError


def text(identity: str) -> Segment:
    return Segment(id=identity, label=identity, kind=SegmentKind.TEXT)


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=40), st.booleans())
def test_every_token_is_in_the_segment_it_was_given(owners: list[str], sink: bool) -> None:
    segments = build_segments([text(owner) for owner in owners], prompt_tokens=len(owners), sink=sink)
    named = [segments.segments[place].id for place in segments.by_token]
    assert named == ([SINK, *owners[1:]] if sink else owners)
    assert segments.tokens == len(owners)
    assert segments.sizes.sum() == len(owners)
    for place, segment in enumerate(segments.segments):
        assert segments.positions(segment.id) == tuple(np.flatnonzero(segments.by_token == place))


def test_segments_are_listed_by_their_first_token() -> None:
    segments = build_segments([text(owner) for owner in "baab"], prompt_tokens=4, sink=False)
    assert [segment.id for segment in segments.segments] == ["b", "a"]
    assert [(run.start, run.end) for run in segments.runs] == [(0, 1), (1, 3), (3, 4)]


def test_a_segment_may_be_the_sink_alone() -> None:
    assert [segment.kind for segment in plain_segments(1).segments] == [SegmentKind.SINK]


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([(1, 3, 0), (3, 4, 1)], "from 0 on"),
        ([(0, 2, 0), (3, 4, 1)], "runs touch"),
        ([(0, 2, 0), (1, 4, 1)], "runs touch"),
        ([(0, 2, 0), (2, 4, 2)], "names one of 2 segments"),
        ([(0, 2, 0), (2, 4, 0)], "every segment has a run"),
    ],
)
def test_runs_that_are_no_partition_are_refused(runs: list[tuple[int, int, int]], said: str) -> None:
    made = tuple(Run(start=start, end=end, segment=segment) for start, end, segment in runs)
    with pytest.raises(UsageError, match=said):
        Segments(segments=(text("a"), text("b")), runs=made, prompt_tokens=2)


def test_an_unknown_id_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="there are: sink, text"):
        plain_segments(5).index("nothing")


def test_no_tokens_are_refused() -> None:
    with pytest.raises(UsageError, match="at least one token"):
        build_segments([], prompt_tokens=1)
