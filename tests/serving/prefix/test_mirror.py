from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.prefix import BlockHasher, event_key
from serving.prefix.mirror import (
    AllBlocksCleared,
    BlocksRemoved,
    BlocksStored,
    EventsLostError,
    KVEvent,
    PoolMirror,
)

KEYS = BlockHasher(2).keys(range(8))


def test_a_removal_takes_one_copy_of_a_repeated_block() -> None:
    mirror = PoolMirror()
    step = mirror.apply(0, [BlocksStored(keys=(1, 2)), BlocksStored(keys=(2,)), BlocksRemoved(keys=(2,))])
    assert mirror.contents() == {1: 1, 2: 1}
    assert (len(step.stored), len(step.removed), step.copies, mirror.blocks) == (3, 1, 2, 2)


def test_a_difference_counts_copies_on_either_side_whatever_form_the_keys_have() -> None:
    for form in (event_key, lambda key: key):
        mirror = PoolMirror()
        a, b, c = (form(key) for key in KEYS[:3])
        mirror.apply(0, [BlocksStored(keys=(a, a, b))])
        difference = mirror.difference(Counter({KEYS[0]: 1, KEYS[2]: 1}))
        assert not difference.agrees
        assert difference.only_on_server == {a: 1, b: 1}
        assert difference.only_predicted == {c: 1}


def test_a_skipped_batch_makes_the_mirror_incomplete_and_a_comparison_impossible() -> None:
    mirror = PoolMirror()
    mirror.apply(0, [BlocksStored(keys=(1,))])
    assert mirror.complete
    assert mirror.apply(3, [BlocksStored(keys=(2,))]).missed == 2
    assert not mirror.complete
    assert mirror.apply(4, []).missed == 0
    with pytest.raises(EventsLostError, match="before batch 5"):
        mirror.difference({})


def test_a_mirror_that_was_not_there_from_the_first_batch_on_is_incomplete() -> None:
    mirror = PoolMirror()
    mirror.apply(4, [BlocksStored(keys=(1,))])
    assert not mirror.complete


def test_removing_what_was_never_stored_means_events_were_lost() -> None:
    mirror = PoolMirror()
    mirror.apply(0, [BlocksRemoved(keys=(1,))])
    assert not mirror.complete


def test_a_reset_makes_the_mirror_true_again() -> None:
    mirror = PoolMirror()
    mirror.apply(0, [BlocksStored(keys=(9,)), BlocksRemoved(keys=(1,))])
    step = mirror.apply(1, [AllBlocksCleared(), BlocksStored(keys=(5,))])
    assert mirror.complete
    assert step.cleared == 1
    assert mirror.contents() == {5: 1}
    [after] = mirror.apply(2, [BlocksStored(keys=(6,), parent=9)]).stored
    assert after.position is None, "what was there before the reset is forgotten"


def test_a_removed_block_is_told_with_its_place_in_the_prompt_and_its_ids() -> None:
    mirror = PoolMirror()
    mirror.apply(0, [BlocksStored(keys=(1, 2), token_ids=(10, 11, 12, 13))])
    mirror.apply(1, [BlocksStored(keys=(3,), parent=2, token_ids=(14, 15))])
    mirror.apply(2, [BlocksStored(keys=(7,), parent=99, token_ids=(0, 0))])
    removed = mirror.apply(3, [BlocksRemoved(keys=(3, 1, 7))]).removed
    assert [(block.position, block.token_ids) for block in removed] == [
        (2, (14, 15)),
        (0, (10, 11)),
        (None, (0, 0)),
    ]


events = st.lists(
    st.one_of(
        st.builds(BlocksStored, keys=st.lists(st.integers(0, 3), max_size=3).map(tuple)),
        st.builds(BlocksRemoved, keys=st.lists(st.integers(0, 3), max_size=2).map(tuple)),
        st.builds(AllBlocksCleared),
    ),
    max_size=20,
)


@given(events=events, cuts=st.sets(st.integers(0, 20)))
def test_how_events_are_cut_into_batches_changes_nothing(events: list[KVEvent], cuts: set[int]) -> None:
    whole, pieces = PoolMirror(), PoolMirror()
    whole.apply(0, events)
    edges = [0, *sorted(cut for cut in cuts if cut < len(events)), len(events)]
    for number, (start, end) in enumerate(pairwise(edges)):
        pieces.apply(number, events[start:end])
    assert pieces.contents() == whole.contents()
    assert pieces.complete == whole.complete
    assert all(copies > 0 for copies in whole.contents().values())
