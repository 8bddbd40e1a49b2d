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
    Fact(path="config/intake.ini", asks="the seconds between two looks for mail", value="60"),
    Fact(path="config/intake.ini", asks="the hours after which a request is stale", value="48"),
    Fact(path="config/billing.ini", asks="the time at which invoices are sent", value="02:30"),
    Fact(path="data/berths.csv", asks="the length of berth 8", value="18"),
    Fact(path="data/berths.csv", asks="the fuel distance of berth 6", value="35"),
    Fact(path="data/rates.csv", asks="the rate in summer", value="2.40"),
    Fact(path="data/rates.csv", asks="the rate in winter", value="1.10"),
    Fact(path="logs/planner.log", asks="the request that held berth 7 at 09:43", value="R-121"),
    Fact(path="logs/planner.log", asks="the time at which a hold expired", value="09:42"),
    Fact(path="logs/billing.log", asks="the invoice that was sent", value="I-2041"),
    Fact(path="logs/intake.log", asks="the length in the first mail", value="11"),
)
"""No value is a number that a list or a count of three would bring into an answer by itself."""


def file_question(number: int, seed: int = 0) -> FileQuestion:
    """Question `number` of a seed: three facts from three files, the same for the same arguments.

    Each four questions, from the first on, ask for every fact once, so that no fact alone decides a study.

    Raises `UsageError` for a negative number or seed.
    """
    if number < 0 or seed < 0:
        raise UsageError(f"Expected a number and a seed of 0 or more, got {number} and {seed}.")
    block, place = divmod(number, len(FACTS) // FACTS_ASKED)
    facts = _dealt(draws(f"file-questions/{block}", seed))[place]
    listed = "; ".join(f"in {fact.path}, {fact.asks}" for fact in facts)
    return FileQuestion(
        text=f"Read these {len(facts)} files one after another, and then answer with one line that has these "
        f"{len(facts)} values: {listed}.",
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
    return re.search(rf"(?<![\w.:-]){re.escape(value)}(?![\w:]|[-.]\d)", answer) is not None
