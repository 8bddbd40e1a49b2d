"""Made-up people, places and codes: enough that no two seeds tell the same story."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

FIRST_NAMES: Final = (
    "Ada", "Bruno", "Chiara", "Dario", "Edda", "Femi", "Greta", "Hamid", "Ines", "Jonas", "Kavita", "Liam",
    "Mirela", "Nuno", "Olga", "Pavel", "Quirin", "Rosa", "Samir", "Tove", "Uma", "Viktor", "Wanda", "Yara",
)  # fmt: skip
LAST_NAMES: Final = (
    "Abara", "Brandt", "Castel", "Dolan", "Eskola", "Ferro", "Gruber", "Haddad", "Ivanova", "Jansen", "Keller",
    "Lindqvist", "Moreau", "Nakata", "Okoye", "Petrov", "Quist", "Rossi", "Sandoval", "Tanaka", "Ulbrich",
    "Varga", "Weiss", "Zeman",
)  # fmt: skip
PLACES: Final = (
    "north gate", "boat house", "archive", "green room", "loading dock", "clock tower", "seed store", "east wing",
    "tram depot", "observatory", "paint shop", "ice cellar", "music hall", "fish market", "map room", "old mill",
    "winter garden", "print shop", "signal box", "salt store", "rope walk", "tide office", "kiln yard", "bell loft",
)  # fmt: skip
COLOURS: Final = ("black", "white", "grey", "ginger", "brown", "cream")
ANIMALS: Final = ("dog", "rabbit", "parrot", "ferret", "hen", "goat")
_SYLLABLES: Final = (
    "ba", "de", "fi", "go", "hu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "wu", "za",
)  # fmt: skip


def people(rng: random.Random, count: int) -> list[str]:
    """Different full names that share neither first nor last name; at most 24."""
    return [
        f"{first} {last}"
        for first, last in zip(rng.sample(FIRST_NAMES, count), rng.sample(LAST_NAMES, count), strict=True)
    ]


def company(rng: random.Random, taken: Sequence[str] = ()) -> str:
    """A made-up company name that is not in `taken`."""
    while (name := "".join(rng.choice(_SYLLABLES) for _ in range(3)).capitalize()) in taken:
        pass
    return name


def codes(rng: random.Random, count: int, digits: int = 6) -> list[str]:
    """Different numbers of `digits` digits that do not begin with 0."""
    return [str(number) for number in rng.sample(range(10 ** (digits - 1), 10**digits), count)]


def letter_codes(rng: random.Random, count: int, letters: int = 4) -> list[str]:
    """Different upper-case labels without vowels and digits, so that none is a word or a number."""
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choice("BCDFGHJKLMNPQRSTVWXZ") for _ in range(letters))] = None
    return list(found)
