"""The cities of the simulated world: made up but for their names and their offsets from UTC in January."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from experiments.agent.tools.outcome import Failure, ToolError


@dataclass(frozen=True, slots=True)
class Weather:
    """One day in one city."""

    celsius: int
    sky: str
    wind_kmh: int


@dataclass(frozen=True, slots=True)
class City:
    """What the tools know of a city."""

    utc_offset_hours: float
    days: tuple[Weather, Weather, Weather]
    """Today, tomorrow, and the day after."""


CITIES: Final[Mapping[str, City]] = MappingProxyType(
    {
        "Berlin": City(1, (Weather(2, "light snow", 14), Weather(0, "cloudy", 9), Weather(3, "sunny", 11))),
        "Cairo": City(2, (Weather(19, "sunny", 16), Weather(21, "sunny", 12), Weather(18, "hazy", 22))),
        "Delhi": City(5.5, (Weather(14, "fog", 5), Weather(16, "fog", 6), Weather(17, "hazy", 8))),
        "Lisbon": City(0, (Weather(15, "showers", 20), Weather(14, "rain", 31), Weather(16, "sunny", 13))),
        "London": City(0, (Weather(7, "rain", 24), Weather(8, "cloudy", 18), Weather(6, "rain", 27))),
        "Nairobi": City(3, (Weather(25, "sunny", 15), Weather(26, "sunny", 14), Weather(24, "showers", 12))),
        "New York": City(-5, (Weather(-3, "sunny", 19), Weather(-1, "snow", 26), Weather(1, "cloudy", 15))),
        "Paris": City(1, (Weather(6, "cloudy", 12), Weather(7, "rain", 17), Weather(5, "sunny", 9))),
        "San Francisco": City(
            -8, (Weather(12, "fog", 13), Weather(13, "sunny", 16), Weather(11, "rain", 29))
        ),
        "Sao Paulo": City(
            -3, (Weather(28, "thunderstorm", 21), Weather(26, "rain", 18), Weather(29, "sunny", 10))
        ),
        "Sydney": City(11, (Weather(27, "sunny", 23), Weather(31, "sunny", 17), Weather(24, "showers", 25))),
        "Tokyo": City(9, (Weather(8, "sunny", 10), Weather(9, "sunny", 8), Weather(6, "light rain", 12))),
    }
)


def city_named(asked: str) -> str:
    """The city as the table spells it; raises `ToolError` for one that it lacks."""
    wanted = " ".join(asked.split()).casefold()
    for name in CITIES:
        if name.casefold() == wanted:
            return name
    raise ToolError(
        f"There is no city {asked[:80]!r}; the cities are {', '.join(CITIES)}.", Failure.NOT_FOUND
    )
