"""The folder that the tool prompts read from: one short note for each of twelve trips, made up and never changing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class Trip:
    """What one note says."""

    path: str
    """Relative to the root."""
    traveller: str
    city: str
    budget: int
    currency: str
    nights: int

    @property
    def text(self) -> str:
        """The note, byte for byte."""
        return (
            f"traveller: {self.traveller}\ncity: {self.city}\nbudget: {self.budget} {self.currency}\n"
            f"nights: {self.nights}\n"
        )


def _trip(traveller: str, city: str, budget: int, currency: str, nights: int) -> Trip:
    return Trip(f"trips/{traveller.lower()}.txt", traveller, city, budget, currency, nights)


TRIPS: Final[tuple[Trip, ...]] = (
    _trip("Ada", "Lisbon", 340, "EUR", 3),
    _trip("Bruno", "Tokyo", 1250, "USD", 6),
    _trip("Chiara", "Cairo", 620, "GBP", 4),
    _trip("Dario", "Nairobi", 980, "CHF", 5),
    _trip("Edda", "Sydney", 2400, "AUD", 9),
    _trip("Femi", "Berlin", 415, "EUR", 2),
    _trip("Greta", "New York", 1130, "CAD", 4),
    _trip("Hamid", "Delhi", 760, "USD", 7),
    _trip("Ines", "Sao Paulo", 5200, "BRL", 8),
    _trip("Jonas", "Paris", 505, "GBP", 3),
    _trip("Kavita", "London", 890, "EUR", 5),
    _trip("Liam", "San Francisco", 1675, "USD", 6),
)


def write_trips(root: Path) -> None:
    """Write every note below `root`."""
    for trip in TRIPS:
        place = root / trip.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(trip.text, encoding="utf-8")
