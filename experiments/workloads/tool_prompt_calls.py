"""The calls that a tool prompt expects, and what the tools themselves answer to them."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Final

from pydantic import JsonValue

from experiments.agent.tools import GroupName, build_toolbox
from serving.assembler.record import Record
from serving.errors import LabError

READ_FILE: Final = "read_file"
GET_TIME: Final = "get_time"
GET_WEATHER: Final = "get_weather"
CONVERT: Final = "convert_currency"
CALCULATE: Final = "calculate"
RUN_PYTHON: Final = "run_python"

DEFAULTS: Final[dict[str, dict[str, JsonValue]]] = {
    READ_FILE: {"start_line": 1, "max_lines": 200},
    GET_TIME: {"city": "UTC"},
    GET_WEATHER: {"days_ahead": 0},
}
"""What an argument that a call leaves out means: a call that spells it out is the same call."""


class ExpectedCall(Record):
    """A call that has to be made."""

    name: str
    arguments: dict[str, JsonValue]
    """All of them, optional ones included; empty for a program, which has no one right text."""
    prints: str | None = None
    """What the program has to print; None: the call runs none."""


def time_in(city: str) -> ExpectedCall:
    """The time in a city is asked for."""
    return ExpectedCall(name=GET_TIME, arguments={"city": city})


def weather_in(city: str, days_ahead: int = 0) -> ExpectedCall:
    """The weather of a city is asked for; 0 days ahead is today."""
    return ExpectedCall(name=GET_WEATHER, arguments={"city": city, "days_ahead": days_ahead})


def converted(amount: Decimal | int, source: str, target: str) -> ExpectedCall:
    """An amount is converted from one currency into another."""
    number = int(amount) if amount == int(amount) else float(amount)
    return ExpectedCall(name=CONVERT, arguments={"amount": number, "source": source, "target": target})


def calculated(expression: str) -> ExpectedCall:
    """An expression is calculated."""
    return ExpectedCall(name=CALCULATE, arguments={"expression": expression})


def file_read(path: str) -> ExpectedCall:
    """A file is read from its beginning."""
    return ExpectedCall(name=READ_FILE, arguments={"path": path, "start_line": 1, "max_lines": 200})


def program(prints: str) -> ExpectedCall:
    """A program, whatever its text, is run and prints this."""
    return ExpectedCall(name=RUN_PYTHON, arguments={}, prints=prints)


def told(call: ExpectedCall, field: str) -> Decimal:
    """The number that a weather or currency tool tells for a call: what the next call of a chain has to hold."""
    tools = build_toolbox((GroupName.WEATHER, GroupName.CURRENCY))
    outcome = tools.run(call.name, json.dumps(call.arguments))
    if field not in outcome.verified:
        raise LabError(f"Expected {call.name} to tell {field!r} for {call.arguments}: {outcome.text}")
    return Decimal(str(outcome.verified[field]))
