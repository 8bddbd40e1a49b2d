"""Questions about the frozen folder that need several files, and a grader that reads the last answer alone."""

from __future__ import annotations

import random
import re
from typing import Final

from experiments.workloads.scenario import draws
from serving.assembler.record import Record
from serving.errors import UsageError

FACTS_ASKED: Final = 3
"""Each in another file: the question is six messages away when the last of them is read."""


class Fact(Record):
    """One thing that one file says, in the words that ask for it."""

    path: str
    asks: str
    value: str


class FileQuestion(Record):
    """A task for an agent with file tools."""

    text: str
    facts: tuple[Fact, ...]

    def found(self, answer: str | None) -> int:
        """How many of the values an answer holds, each as a word of its own; no answer holds none."""
        return sum(_holds(answer or "", fact.value) for fact in self.facts)

    def solved(self, answer: str | None) -> bool:
        """Whether an answer holds all of them."""
        return self.found(answer) == len(self.facts)


FACTS: Final = (
    Fact(path="config/planner.ini", asks="the minutes of a hold", value="30"),
    Fact(path="config/intake.ini", asks="poll_seconds", value="60"),
    Fact(path="config/intake.ini", asks="stale_after_hours", value="48"),
    Fact(path="config/billing.ini", asks="the time (at) of [send]", value="02:30"),
    Fact(path="data/rates.csv", asks="the rate of summer", value="2.40"),
    Fact(path="data/rates.csv", asks="the rate of winter", value="1.10"),
    Fact(path="data/berths.csv", asks="the length of berth 8", value="18"),
    Fact(path="data/berths.csv", asks="the length of berth 7", value="14"),
    Fact(path="data/berths.csv", asks="the fuel_distance of berth 6", value="35"),
    Fact(path="data/berths.csv", asks="the fuel_distance of berth 5", value="40"),
    Fact(path="docs/incidents.md", asks="the date of the double-booked berth", value="2026-01-17"),
    Fact(path="docs/incidents.md", asks="the date of the invoices sent twice", value="2025-11-03"),
)
"""Asked for in the file's own words, and none of them in a log: a model of 1.5B reads a log again and again, and what
it cannot do under any arm tells nothing of arms. No value is a number that a list or a count of three would bring into
an answer by itself."""


def file_question(number: int, seed: int = 0) -> FileQuestion:
    """Question `number` of a seed: three facts from three files, the same for the same arguments.

    Each four questions, from the first on, ask for every fact once, so that no fact alone decides a study.

    Raises `UsageError` for a negative number or seed.
    """
    if number < 0 or seed < 0:
        raise UsageError(f"Expected a number and a seed of 0 or more, got {number} and {seed}.")
    block, place = divmod(number, len(FACTS) // FACTS_ASKED)
    facts = _dealt(draws(f"file-questions/{block}", seed))[place]
    listed = "; ".join(f"{fact.asks} in {fact.path}" for fact in facts)
    return FileQuestion(
        text=f"Read these {len(facts)} files one after another, and then finish with these {len(facts)} values: "
        f"{listed}.",
        facts=facts,
    )


def _dealt(rng: random.Random) -> list[tuple[Fact, ...]]:
    """All facts in random order, cut into questions whose facts are of different files."""
    facts = list(FACTS)
    while True:
        rng.shuffle(facts)
        hands = [tuple(facts[at : at + FACTS_ASKED]) for at in range(0, len(facts), FACTS_ASKED)]
        if all(len({fact.path for fact in hand}) == FACTS_ASKED for hand in hands):
            return hands


def _holds(answer: str, value: str) -> bool:
    """Whether the value stands in the answer and is no part of a longer number, time or name."""
    return re.search(rf"(?<![\w.:-]){re.escape(value)}(?!\w|[-.:]\d)", answer) is not None
