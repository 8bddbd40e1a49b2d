"""How the tool prompts are written: a few kinds of question in each class, filled from a number and a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeVar

from experiments.workloads.tool_prompt_calls import (
    ExpectedCall,
    calculated,
    converted,
    file_read,
    program,
    time_in,
    told,
    weather_in,
)
from experiments.workloads.tool_prompt_files import TRIPS

T = TypeVar("T")


class PromptClass(StrEnum):
    """What a prompt asks of a model."""

    SINGLE = "single"
    """One call."""
    PARALLEL = "parallel"
    """Two or three calls that do not depend on each other."""
    CHAINED = "chained"
    """A call whose arguments come out of the one before."""
    NO_TOOL = "no-tool"
    """No call: the answer is words that a model knows."""
    TOOL_ERROR = "tool-error"
    """A call that fails; then the other one that the prompt names, or none."""


@dataclass(frozen=True, slots=True)
class Written:
    """One question, the calls it needs, and whether the last of them fails."""

    text: str
    calls: tuple[ExpectedCall, ...]
    fails: bool = False


Writer = Callable[[int, random.Random], Written]
"""From the number of the question among those of its kind, and a source of chance."""

CITIES: Final = (
    "Berlin", "Cairo", "Delhi", "Lisbon", "London", "Nairobi", "New York", "Paris", "San Francisco", "Sao Paulo",
    "Sydney", "Tokyo",
)  # fmt: skip
NO_CITIES: Final = (
    "Atlantis", "Gotham", "Narnia", "Rivendell", "Springfield", "Metropolis", "Eldorado", "Camelot", "Wakanda",
    "Lilliput", "Utopia", "Hogsmeade",
)  # fmt: skip
CODES: Final = ("EUR", "AUD", "BRL", "CAD", "CHF", "CNY", "GBP", "INR", "JPY", "USD")
NO_CODES: Final = ("GLD", "QQQ", "ZZT", "XAQ", "KRD", "LUN", "MRS", "NPT", "PLU", "VNS", "TTN", "ORB")
DAYS: Final = ("today", "tomorrow", "in two days")


def _turn(choices: Sequence[T], number: int, length: int) -> T:
    """One of `choices` so that (number % length, the choice) repeats only after length × choices numbers."""
    return choices[(number + number // length) % len(choices)]


def _city(number: int) -> str:
    return CITIES[number % len(CITIES)]


def _two_cities(number: int, apart: int) -> tuple[str, str]:
    return _city(number), _city(number + apart + number // len(CITIES))


def _two_codes(rng: random.Random) -> tuple[str, str]:
    source, target = rng.sample(CODES, 2)
    return source, target


def _amount(rng: random.Random) -> int:
    return rng.randrange(20, 5_000)


def _one_time(number: int, rng: random.Random) -> Written:
    city = _city(number)
    asked = _turn(
        ("What time is it in {}?", "Tell me the local time in {}.", "What day is it in {}?"), number, 12
    )
    return Written(asked.format(city), (time_in(city),))


def _one_weather(number: int, rng: random.Random) -> Written:
    city, days = _city(number), _turn((1, 0, 2), number, 12)
    return Written(f"What will the weather be like in {city} {DAYS[days]}?", (weather_in(city, days),))


def _one_conversion(number: int, rng: random.Random) -> Written:
    amount, (source, target) = _amount(rng), _two_codes(rng)
    asked = _turn(("Convert {} {} to {}.", "How much is {} {} in {}?"), number, 12)
    return Written(asked.format(amount, source, target), (converted(amount, source, target),))


def _one_calculation(number: int, rng: random.Random) -> Written:
    one, two, three = (rng.randrange(12, 990) for _ in range(3))
    expression = _turn(("{} * {} + {}", "{} * {} - {}", "({} + {}) * {}"), number, 12).format(one, two, three)
    return Written(f"Calculate {expression}.", (calculated(expression),))


def _one_file(number: int, rng: random.Random) -> Written:
    trip = TRIPS[number % len(TRIPS)]
    asked = _turn(("What is the budget in {}?", "How many nights are planned in {}?"), number, 12)
    return Written(asked.format(f"the file {trip.path}"), (file_read(trip.path),))


def _one_program(number: int, rng: random.Random) -> Written:
    size = 20 + 3 * number + rng.randrange(3)
    what, value = (
        (f"the sum of the digits of 2**{size}", sum(map(int, str(2**size)))),
        (f"the sum of the squares of the numbers from 1 to {size}", sum(n * n for n in range(1, size + 1))),
        (f"how many numbers below {10 * size} divide by 7", sum(n % 7 == 0 for n in range(1, 10 * size))),
    )[number % 3]
    return Written(f"Write and run a Python program that prints {what}.", (program(str(value)),))


def _two_weathers(number: int, rng: random.Random) -> Written:
    one, two = _two_cities(number, 3)
    days = number % 3
    return Written(
        f"Compare the weather in {one} and in {two} {DAYS[days]}.",
        (weather_in(one, days), weather_in(two, days)),
    )


def _two_times(number: int, rng: random.Random) -> Written:
    one, two = _two_cities(number, 5)
    return Written(f"What time is it in {one} and in {two}?", (time_in(one), time_in(two)))


def _time_and_weather(number: int, rng: random.Random) -> Written:
    one, two = _two_cities(number, 1)
    return Written(
        f"What time is it in {one}, and what is the weather today in {two}?", (time_in(one), weather_in(two))
    )


def _two_conversions(number: int, rng: random.Random) -> Written:
    source, one, two = rng.sample(CODES, 3)
    amount = _amount(rng)
    return Written(
        f"How much is {amount} {source} in {one} and in {two}?",
        (converted(amount, source, one), converted(amount, source, two)),
    )


def _three_tools(number: int, rng: random.Random) -> Written:
    city, trip, (source, target), amount = _city(number), rng.choice(TRIPS), _two_codes(rng), _amount(rng)
    return Written(
        f"Give me three things: the weather today in {city}, {amount} {source} in {target}, and the budget in the "
        f"file {trip.path}.",
        (weather_in(city), converted(amount, source, target), file_read(trip.path)),
    )


def _fahrenheit(number: int, rng: random.Random) -> Written:
    first = weather_in(_city(number), _turn((0, 1, 2), number, 12))
    degrees = f"{told(first, 'celsius')} * 9 / 5 + 32"
    return Written(
        f"Look up the temperature in {first.arguments['city']} {DAYS[int(str(first.arguments['days_ahead']))]}, then "
        "calculate it in Fahrenheit as C * 9 / 5 + 32.",
        (first, calculated(degrees)),
    )


def _shared(number: int, rng: random.Random) -> Written:
    (source, target), people = _two_codes(rng), rng.randrange(3, 9)
    first = converted(_amount(rng), source, target)
    return Written(
        f"Convert {first.arguments['amount']} {source} to {target}, then calculate that amount divided by {people}.",
        (first, calculated(f"{told(first, 'converted')} / {people}")),
    )


def _weather_there(number: int, rng: random.Random) -> Written:
    trip, days = TRIPS[number % len(TRIPS)], _turn((0, 1, 2), number, 12)
    return Written(
        f"Read the file {trip.path}, then tell me the weather {DAYS[days]} in the city that it names.",
        (file_read(trip.path), weather_in(trip.city, days)),
    )


def _budget_in(number: int, rng: random.Random) -> Written:
    trip = TRIPS[number % len(TRIPS)]
    target = _turn([code for code in CODES if code != trip.currency], number, 12)
    return Written(
        f"Read the file {trip.path}, then convert its budget to {target}.",
        (file_read(trip.path), converted(trip.budget, trip.currency, target)),
    )


def _converted_on(number: int, rng: random.Random) -> Written:
    source, over, target = rng.sample(CODES, 3)
    first = converted(_amount(rng), source, over)
    return Written(
        f"Convert {first.arguments['amount']} {source} to {over}, then convert the {over} that you get to {target}.",
        (first, converted(told(first, "converted"), over, target)),
    )


def _failing(question: str, first: ExpectedCall, number: int, other: str, second: ExpectedCall) -> Written:
    """Every second one names what to do instead."""
    if number % 2:
        return Written(f"{question} If that fails, {other} instead.", (first, second))
    return Written(question, (first,), fails=True)


def _no_weather(number: int, rng: random.Random) -> Written:
    place, city = NO_CITIES[number % 12], rng.choice(CITIES)
    day = (number // 12) % 3
    other = f"tell me the weather in {city} {DAYS[day]}"
    first, second = weather_in(place, day), weather_in(city, day)
    return _failing(f"What is the weather in {place} {DAYS[day]}?", first, number, other, second)


def _no_time(number: int, rng: random.Random) -> Written:
    place, city = NO_CITIES[(number + 5) % 12], rng.choice(CITIES)
    asked = ("What time is it in {}?", "Tell me the local time in {}.", "What day is it in {}?")[
        number // 12 % 3
    ]
    return _failing(asked.format(place), time_in(place), number, f"tell me the time in {city}", time_in(city))


def _no_currency(number: int, rng: random.Random) -> Written:
    (source, other), target, amount = _two_codes(rng), NO_CODES[number % 12], _amount(rng)
    return _failing(
        f"Convert {amount} {source} to {target}.",
        converted(amount, source, target),
        number,
        f"convert it to {other}",
        converted(amount, source, other),
    )


def _no_file(number: int, rng: random.Random) -> Written:
    missing, trip = f"trips/{rng.choice(NO_CITIES).lower()}-{number + 1}.txt", rng.choice(TRIPS)
    return _failing(
        f"What does the file {missing} say?",
        file_read(missing),
        number,
        f"tell me what the file {trip.path} says",
        file_read(trip.path),
    )


def _no_quotient(number: int, rng: random.Random) -> Written:
    whole, part = rng.randrange(100, 9_000), rng.randrange(3, 60)
    expression, other = f"{whole} / ({part} - {part})", f"{whole} / {part}"
    return _failing(
        f"Calculate {expression}.", calculated(expression), number, f"calculate {other}", calculated(other)
    )


_WORDS: Final = (
    "house", "river", "bridge", "window", "garden", "letter", "mountain", "bottle", "candle", "island", "kitchen",
    "feather",
)  # fmt: skip
_NOTIONS: Final = (
    "a time zone", "an exchange rate", "a weather forecast", "a calculator", "a text file", "a computer program",
    "daylight saving time", "a thunderstorm", "a currency", "a fraction", "a folder", "a programming language",
)  # fmt: skip
_NAMES: Final = (
    "Ada", "Bruno", "Chiara", "Dario", "Edda", "Femi", "Greta", "Hamid", "Ines", "Jonas", "Kavita", "Liam",
)  # fmt: skip


def _words(choices: Sequence[str], *questions: str) -> Writer:
    def write(number: int, rng: random.Random) -> Written:
        asked = _turn(questions, number, len(choices))
        return Written(asked.format(choices[number % len(choices)]), ())

    return write


WRITERS: Final[Mapping[PromptClass, tuple[Writer, ...]]] = MappingProxyType(
    {
        PromptClass.SINGLE: (
            _one_time,
            _one_weather,
            _one_conversion,
            _one_calculation,
            _one_file,
            _one_program,
        ),
        PromptClass.PARALLEL: (_two_weathers, _two_times, _time_and_weather, _two_conversions, _three_tools),
        PromptClass.CHAINED: (_fahrenheit, _shared, _weather_there, _budget_in, _converted_on),
        PromptClass.NO_TOOL: (
            _words(
                _WORDS, "What is the plural of the English word '{}'?", "Name a word that rhymes with '{}'."
            ),
            _words(
                _NOTIONS, "Explain in one sentence what {} is.", "Who would need {}? Answer in one sentence."
            ),
            _words(_NAMES, "My name is {}. Please greet me.", "Write a one-line birthday wish for {}."),
            _words(
                _WORDS, "Write a short sentence with the word '{}'.", "Translate the word '{}' into French."
            ),
            _words(CITIES, "In which country is {}?", "Name one thing that {} is known for."),
        ),
        PromptClass.TOOL_ERROR: (_no_weather, _no_time, _no_currency, _no_file, _no_quotient),
    }
)
"""The kinds of question of each class, which take turns."""
