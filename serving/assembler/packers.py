"""Which optional items to take: two packers behind one protocol, both exact about ties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from serving.assembler.policy import PackerName
from serving.assembler.utility import UTILITY_DECIMALS
from serving.errors import UsageError

KNAPSACK_MOST_ITEMS: Final = 25
"""More optional items than this are a retrieval that was not ranked; exact packing is then the wrong tool."""


@dataclass(frozen=True, slots=True)
class Sized:
    """An optional item as a packer sees it: its utility is positive, its size an estimate."""

    id: str
    tokens: int
    utility: float


class Packer(Protocol):
    """Chooses ids whose tokens sum to at most `capacity`; a pure function of the set, whatever its order."""

    def pack(self, items: Sequence[Sized], capacity: int) -> frozenset[str]:
        """The chosen ids; a negative capacity chooses nothing."""


class GreedyPacker:
    """Takes the most useful item that still fits, again and again."""

    def pack(self, items: Sequence[Sized], capacity: int) -> frozenset[str]:
        chosen: set[str] = set()
        for item in sorted(items, key=lambda item: (-item.utility, item.tokens, item.id)):
            if item.tokens <= capacity:
                chosen.add(item.id)
                capacity -= item.tokens
        return frozenset(chosen)


class KnapsackPacker:
    """Maximises summed utility (0/1 knapsack), then takes the fewest tokens; further ties go by id.

    Keeps the Pareto front of (tokens, utility) over prefixes of the item list, so it is exact without a table
    over tokens. Raises `UsageError` above `KNAPSACK_MOST_ITEMS` items.
    """

    def pack(self, items: Sequence[Sized], capacity: int) -> frozenset[str]:
        if len(items) > KNAPSACK_MOST_ITEMS:
            raise UsageError(
                f"The knapsack packer takes at most {KNAPSACK_MOST_ITEMS} optional items, but "
                f"{len(items)} came; rank and cut them before the request, or use the greedy packer."
            )
        if capacity < 0:
            return frozenset()
        front: list[_Choice] = [_Choice(0, 0, ())]
        for item in sorted(items, key=lambda item: item.id):
            # Integers: a sum of floats would depend on the order of adding.
            worth = round(item.utility * 10**UTILITY_DECIMALS)
            taken = [
                _Choice(choice.tokens + item.tokens, choice.worth + worth, (*choice.ids, item.id))
                for choice in front
                if choice.tokens + item.tokens <= capacity
            ]
            front = _pareto([*front, *taken])
        return frozenset(front[-1].ids)


@dataclass(frozen=True, slots=True)
class _Choice:
    tokens: int
    worth: int
    ids: tuple[str, ...]


def _pareto(choices: list[_Choice]) -> list[_Choice]:
    """Choices that no other one beats, by rising tokens and therefore rising worth."""
    front: list[_Choice] = []
    for choice in sorted(choices, key=lambda choice: (choice.tokens, -choice.worth, choice.ids)):
        if not front or choice.worth > front[-1].worth:
            front.append(choice)
    return front


def packer_named(name: PackerName) -> Packer:
    """The packer that a policy names."""
    match name:
        case PackerName.GREEDY:
            return GreedyPacker()
        case PackerName.KNAPSACK:
            return KnapsackPacker()
