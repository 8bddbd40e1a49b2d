from __future__ import annotations

from collections import Counter

import pytest

from serving.prefix.mirror import AllBlocksCleared, BlocksRemoved, BlocksStored, EventsLostError, PoolMirror


def test_a_removal_takes_one_copy_of_a_repeated_block() -> None:
    mirror = PoolMirror()
    mirror.apply(0, [BlocksStored(keys=(1, 2)), BlocksStored(keys=(2,)), BlocksRemoved(keys=(2,))])
    assert mirror.contents() == {1: 1, 2: 1}


def test_a_difference_counts_copies_on_either_side() -> None:
    mirror = PoolMirror()
    mirror.apply(0, [BlocksStored(keys=(1, 1, 2))])
    difference = mirror.difference(Counter({1: 1, 3: 1}))
    assert not difference.agrees
    assert difference.only_on_server == {1: 1, 2: 1}
    assert difference.only_predicted == {3: 1}


def test_a_skipped_batch_is_not_passed_over() -> None:
    mirror = PoolMirror()
    mirror.apply(4, [BlocksStored(keys=(1,))])
    with pytest.raises(EventsLostError, match="batch 6"):
        mirror.apply(6, [BlocksStored(keys=(2,))])
    with pytest.raises(EventsLostError):
        mirror.apply(7, [])


def test_removing_what_was_never_stored_means_events_were_lost() -> None:
    with pytest.raises(EventsLostError):
        PoolMirror().apply(0, [BlocksRemoved(keys=(1,))])


def test_a_reset_makes_the_mirror_true_again() -> None:
    mirror = PoolMirror()
    with pytest.raises(EventsLostError):
        mirror.apply(0, [BlocksRemoved(keys=(1,))])
    mirror.apply(1, [AllBlocksCleared(), BlocksStored(keys=(5,))])
    assert mirror.contents() == {5: 1}
