from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.assembler.packers import KNAPSACK_MOST_ITEMS, GreedyPacker, KnapsackPacker, Packer, Sized
from serving.errors import UsageError

UTILITIES = st.integers(1, 10**9).map(lambda n: n / 10**9)


def items_of(pairs: list[tuple[int, float]]) -> list[Sized]:
    return [Sized(f"i{index:02d}", tokens, utility) for index, (tokens, utility) in enumerate(pairs)]


ITEMS = st.lists(st.tuples(st.integers(0, 60), UTILITIES), max_size=10).map(items_of)


def worth(items: list[Sized], chosen: frozenset[str]) -> int:
    return sum(round(item.utility * 10**9) for item in items if item.id in chosen)


@given(ITEMS, st.integers(0, 200))
def test_the_knapsack_finds_what_trying_every_subset_finds(items: list[Sized], capacity: int) -> None:
    subsets = (
        frozenset(item.id for item in subset)
        for size in range(len(items) + 1)
        for subset in combinations(items, size)
        if sum(item.tokens for item in subset) <= capacity
    )
    best = max(worth(items, subset) for subset in subsets)
    assert worth(items, KnapsackPacker().pack(items, capacity)) == best


@pytest.mark.parametrize("packer", [GreedyPacker(), KnapsackPacker()])
@given(items=ITEMS, capacity=st.integers(-5, 200), data=st.data())
def test_a_packer_stays_within_capacity_and_ignores_the_order_of_the_items(
    packer: Packer, items: list[Sized], capacity: int, data: st.DataObject
) -> None:
    chosen = packer.pack(items, capacity)
    assert sum(item.tokens for item in items if item.id in chosen) <= max(0, capacity)
    assert packer.pack(data.draw(st.permutations(items)), capacity) == chosen


def test_greedy_and_knapsack_differ_where_one_large_item_hides_two_small_ones() -> None:
    items = [Sized("large", 10, 0.9), Sized("one", 5, 0.6), Sized("two", 5, 0.6)]
    assert GreedyPacker().pack(items, 10) == {"large"}
    assert KnapsackPacker().pack(items, 10) == {"one", "two"}


def test_equal_worth_goes_to_the_smaller_item() -> None:
    items = [Sized("a-large", 9, 0.5), Sized("b-small", 3, 0.5)]
    for packer in (GreedyPacker(), KnapsackPacker()):
        assert packer.pack(items, 10) == {"b-small"}


def test_the_knapsack_refuses_more_items_than_it_can_solve_exactly() -> None:
    items = [Sized(f"i{index}", 1, 0.5) for index in range(KNAPSACK_MOST_ITEMS + 1)]
    with pytest.raises(UsageError, match="at most 25 optional items, but 26 came"):
        KnapsackPacker().pack(items, 100)


def test_the_knapsack_solves_its_largest_case_over_a_wide_window() -> None:
    # With powers of two every sum up to the capacity occurs: the widest front there is.
    items = [Sized(f"i{index:02d}", 2 ** (index % 13), (index + 1) / 100) for index in range(25)]
    chosen = KnapsackPacker().pack(items, 8_192)
    assert sum(item.tokens for item in items if item.id in chosen) <= 8_192
