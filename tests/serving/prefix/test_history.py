from __future__ import annotations

import errno

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.prefix import history as module
from serving.prefix.history import StoredIds


def test_a_repeat_and_a_prefix_add_no_ids() -> None:
    history = StoredIds()
    ids = np.arange(500, dtype=np.int32)
    for request, end in enumerate((500, 500, 200, 350)):
        history.add(ids[:end], None, request)
    assert history.held_ids() == 500


def test_another_salt_adds_no_ids_but_is_told_apart() -> None:
    history = StoredIds()
    ids = np.arange(500, dtype=np.int32)
    history.add(ids, "a", 0)
    history.add(ids[:100], "b", 1)
    best = history.best(ids, "b")
    assert history.held_ids() == 500
    assert best.same_salt is not None and best.any_salt is not None
    assert (best.same_salt.shared, best.same_salt.request) == (100, 1)
    assert (best.any_salt.shared, best.any_salt.request) == (500, 0)


def test_what_is_held_does_not_keep_the_caller_s_array_alive() -> None:
    history = StoredIds()
    ids = np.arange(500, dtype=np.int32)
    history.add(ids, None, 0)
    ids[:] = 0
    best = history.best(np.arange(500, dtype=np.int32), None)
    assert best.same_salt is not None
    assert best.same_salt.shared == 500


@given(stored=st.lists(st.lists(st.integers(0, 1), max_size=12), min_size=1, max_size=12))
def test_the_tree_holds_one_id_for_each_distinct_prefix(stored: list[list[int]]) -> None:
    history = StoredIds()
    for request, ids in enumerate(stored):
        history.add(np.array(ids, dtype=np.int32), None, request)
    prefixes = {tuple(ids[: end + 1]) for ids in stored for end in range(len(ids))}
    assert history.held_ids() == len(prefixes)


def test_ids_beyond_the_memory_are_found_in_the_file_and_a_full_disk_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "IN_MEMORY", 64)
    stored = StoredIds()
    prompts = [np.arange(10 * n, 10 * n + 100, dtype=np.int32) for n in range(20)]
    for number, ids in enumerate(prompts):
        stored.add(ids, None, number)
    for number, ids in enumerate(prompts):
        match = stored.best(np.append(ids, -1).astype(np.int32), None).same_salt
        assert match is not None
        assert (match.shared, match.request) == (100, number)

    def full(_: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(stored._runs._file, "write", full)
    with pytest.raises(OSError, match="TMPDIR"):
        stored.add(np.arange(1000, 1100, dtype=np.int32), None, 20)
