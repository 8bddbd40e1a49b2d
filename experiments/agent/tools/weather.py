"""The weather of the simulated world, out of a table."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from experiments.agent.tools.cities import CITIES, city_named
from experiments.agent.tools.definitions import Arguments
from experiments.agent.tools.outcome import Failure, Reply
from experiments.agent.tools.tool import ALL_STAGES, Tool, tool

_DAYS: Final = ("today", "tomorrow", "in two days")


class Forecast(Arguments):
    """A city, and how many days from now."""

    city: str
    days_ahead: Annotated[int, Field(ge=0, le=2)] = 0


def weather_tools() -> tuple[Tool, ...]:
    """`get_weather`."""

    def tell(asked: Forecast) -> Reply:
        name = city_named(asked.city)
        day = CITIES[name].days[asked.days_ahead]
        return Reply(
            f"{name}, {_DAYS[asked.days_ahead]}: {day.celsius} °C, {day.sky}, wind {day.wind_kmh} km/h",
            {
                "city": name,
                "days_ahead": asked.days_ahead,
                "celsius": day.celsius,
                "sky": day.sky,
                "wind_kmh": day.wind_kmh,
            },
        )

    return (
        tool(
            "get_weather",
            "Weather in a city, up to two days ahead.",
            Forecast,
            tell,
            failures=(Failure.NOT_FOUND,),
            stages=ALL_STAGES,
        ),
    )
