from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from serving.chat.recent import Recent


def test_what_was_not_asked_for_longest_goes_first() -> None:
    kept: Recent[str, int] = Recent(2)
    kept.put("a", 1)
    kept.put("b", 2)
    assert kept.get("a") == 1
    kept.put("c", 3)
    assert [kept.get(key) for key in "abc"] == [1, None, 3]


def test_values_come_most_recent_first() -> None:
    kept: Recent[str, int] = Recent(3)
    for key, value in (("a", 1), ("b", 2), ("c", 3)):
        kept.put(key, value)
    kept.get("a")
    assert kept.values() == [1, 3, 2]


@given(puts=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 12))), capacity=st.integers(0, 20))
def test_what_is_kept_never_exceeds_the_capacity_and_the_last_one_that_fits_is_there(
    puts: list[tuple[int, int]], capacity: int
) -> None:
    kept: Recent[int, int] = Recent(capacity)
    sizes: dict[int, int] = {}
    for key, size in puts:
        kept.put(key, size, size)
        sizes[key] = size
        assert sum(kept.values()) <= capacity
        assert kept.get(key) == (size if size <= capacity else None)


def test_threads_share_it_without_losing_count() -> None:
    kept: Recent[int, int] = Recent(50)

    def work(seed: int) -> None:
        for step in range(2_000):
            kept.put((seed * 31 + step) % 97, step, step % 7)
            kept.get(step % 97)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept.put(1, 0, 50)
    assert kept.values() == [0]
