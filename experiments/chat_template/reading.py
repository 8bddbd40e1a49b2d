"""Questions about results that are in the history already: what a way of sending does to reading them.

A small model that seldom calls a tool rightly can still read what one answered. Here the calls are right, made by
the script; the model only picks one of a few answers, so that a guess is right once in so many.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Final

from experiments.chat_template.conversation import offered_in, step_of
from experiments.workloads.scenario import draws
from experiments.workloads.tool_prompt_calls import ExpectedCall, calculated, converted, told, weather_in
from experiments.workloads.tool_prompt_texts import CITIES, CODES
from experiments.workloads.tool_prompts import SYSTEM
from serving.assembler import AssistantTurn, Trajectory, Turn, UserTurn


class Reading(StrEnum):
    """Which result is asked for, and what tells it from the others."""

    CALCULATIONS = "calculations"
    """Three parallel calls whose results are bare numbers, alike in length, first and last digit: little but their
    order, or an id, says whose they are."""
    WEATHERS = "weathers"
    """Three parallel calls whose results name their city."""
    CHAIN = "chain"
    """Two conversions, each of the amount before: the last one is asked for."""


@dataclass(frozen=True)
class ReadingTask:
    """A conversation that waits for one answer, the answers that are allowed, and the right one."""

    story: Trajectory
    choices: tuple[str, ...]
    right: str


def reading_task(kind: Reading, seed: int, *, thinking: bool) -> ReadingTask:
    """The task of a kind and a seed; every other kind of difference than the results' place is drawn."""
    rng = draws(f"chat-template-reading/{kind}", seed)
    steps, asked, question, right, others = _WRITERS[kind](rng, seed)
    with TemporaryDirectory(prefix="ctxlab-trips-") as root:
        tools = offered_in(Path(root), interpreter=False)
        turns: list[Turn] = [UserTurn(text=asked)]
        for number, calls in enumerate(steps):
            turns.append(step_of(calls, tools, number=number, first=0, thinking=thinking))
        turns.append(AssistantTurn(text="I have the results."))
        turns.append(UserTurn(text=f"{question} Answer with the number alone."))
        story = Trajectory(system=SYSTEM, tools=tools.specs, turns=tuple(turns))
    choices = [right, *others]
    rng.shuffle(choices)
    return ReadingTask(story, tuple(choices), right)


Steps = Sequence[Sequence[ExpectedCall]]
_Written = tuple[Steps, str, str, str, list[str]]


def _calculations(rng: random.Random, seed: int) -> _Written:
    pairs: list[tuple[int, int]] = []
    values: list[int] = []
    while len(pairs) < 3:
        one, two = rng.randrange(112, 990), rng.randrange(112, 990)
        if one * two not in values and (not values or _alike(one * two, values[0])):
            pairs.append((one, two))
            values.append(one * two)
    texts = [f"{one} * {two}" for one, two in pairs]
    # The middle one stays where it is when results are turned round.
    place = (0, 2)[seed % 2]
    return (
        [[calculated(text) for text in texts]],
        f"Calculate {texts[0]}, {texts[1]} and {texts[2]}.",
        f"What is {texts[place]}?",
        str(values[place]),
        [str(value) for at, value in enumerate(values) if at != place],
    )


def _alike(one: int, other: int) -> bool:
    """Whether nothing that is seen without calculating tells two products apart."""
    digits = [(len(text), text[0], text[-1]) for text in (str(one), str(other))]
    return digits[0] == digits[1]


def _weathers(rng: random.Random, seed: int) -> _Written:
    while True:
        day = rng.randrange(3)
        cities = rng.sample(CITIES, 3)
        calls = [weather_in(city, day) for city in cities]
        degrees = [str(told(call, "celsius")) for call in calls]
        if len(set(degrees)) == 3:
            break
    place = (0, 2)[seed % 2]
    when = ("today", "tomorrow", "in two days")[day]
    return (
        [calls],
        f"What will the weather be like {when} in {cities[0]}, {cities[1]} and {cities[2]}?",
        f"How many degrees Celsius will it be in {cities[place]}?",
        degrees[place],
        [value for at, value in enumerate(degrees) if at != place],
    )


def _chain(rng: random.Random, seed: int) -> _Written:
    while True:
        source, over, target = rng.sample(CODES, 3)
        amount = rng.randrange(120, 5_000)
        first = converted(amount, source, over)
        middle = told(first, "converted")
        second = converted(middle, over, target)
        values = [str(amount), str(middle), str(told(second, "converted"))]
        if len(set(values)) == 3:
            break
    return (
        [[first], [second]],
        f"Convert {amount} {source} to {over}, then convert the {over} that you get to {target}.",
        f"How many {target} is that in the end?",
        values[2],
        values[:2],
    )


_WRITERS: Final = MappingProxyType(
    {Reading.CALCULATIONS: _calculations, Reading.WEATHERS: _weathers, Reading.CHAIN: _chain}
)
