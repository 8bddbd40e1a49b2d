"""The time, as the scenario has it: the machine's clock is never read."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from experiments.agent.tools.cities import CITIES, city_named
from experiments.agent.tools.definitions import Arguments
from experiments.agent.tools.outcome import Failure, Reply
from experiments.agent.tools.tool import ALL_STAGES, Tool, tool
from serving.errors import UsageError

START: Final = datetime(2026, 1, 15, 9, 0, tzinfo=UTC)
"""What the clock shows where a scenario says nothing else."""


class SimulatedClock:
    """A clock that only its scenario moves; threads may share it. Raises `UsageError` for a time without a zone."""

    def __init__(self, now: datetime = START) -> None:
        if now.utcoffset() is None:
            raise UsageError(f"Expected a time with its zone for the simulated clock, got {now}: add tzinfo.")
        self._now = now
        self._moving = threading.Lock()

    @property
    def now(self) -> datetime:
        return self._now

    def advance(self, by: timedelta) -> None:
        """Move on; `UsageError` for a step backwards."""
        if by < timedelta(0):
            raise UsageError(
                f"Expected a step forwards for the simulated clock, got {by}: it never runs back."
            )
        with self._moving:
            self._now += by


class Where(Arguments):
    """A city of the table, or UTC."""

    city: str = "UTC"


def clock_tools(clock: SimulatedClock) -> tuple[Tool, ...]:
    """`get_time`: offsets are those of January, which hold for the whole simulated world."""

    def tell(where: Where) -> Reply:
        if where.city.strip().casefold() == "utc":
            local, name = clock.now.astimezone(UTC), "UTC"
        else:
            name = city_named(where.city)
            local = clock.now.astimezone(timezone(timedelta(hours=CITIES[name].utc_offset_hours)))
        stamp = local.isoformat(timespec="seconds")
        return Reply(f"{name}: {stamp} ({local:%A})", {"city": name, "time": stamp})

    return (
        tool(
            "get_time",
            "Date and time in a city.",
            Where,
            tell,
            failures=(Failure.NOT_FOUND,),
            stages=ALL_STAGES,
        ),
    )
