"""Cats in cages: every fact is in the context, and the answer is in none of them.

Looking up one cage is retrieval; counting over all of them is not, and gets harder with their number. A count made
by code (`summary`) turns the second into the first.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

from experiments.workloads.grading import ANSWER_LINE, Grade, Reason, one_of, read_answer, read_number
from experiments.workloads.scenario import Scenario, draws, tool
from experiments.workloads.words import ANIMALS, COLOURS, PLACES, letter_codes
from serving.assembler import (
    ContextItem,
    TaskStateText,
    ToolCall,
    ToolResult,
    ToolStep,
    Trajectory,
    Turn,
    UserTurn,
)
from serving.assembler.record import Record
from serving.errors import UsageError

SYSTEM: Final = "You keep the register of an animal shelter. You answer from the register alone."
READ: Final = "read_register"
TOOLS: Final = (tool(READ, "Read a part of the register.", part="Which part."),)


class CageAsk(StrEnum):
    """What is asked of the register."""

    COUNT = "count"
    """How many cages hold a cat of one colour: counting."""
    LOOK_UP = "look_up"
    """The colour of the cat in one cage: retrieval."""


class Cage(Record):
    """One line of the register; no animal: the cage is empty."""

    label: str
    animal: str | None
    colour: str | None

    @property
    def line(self) -> str:
        """`Cage QXLM: a white cat.`"""
        if self.animal is None:
            return f"Cage {self.label}: empty."
        return f"Cage {self.label}: a {self.colour} {self.animal}."


class CageCount(Scenario):
    """`cats` of one of two colours, `counted` of them in the asked one, among `others` that are no such cat."""

    cages: tuple[Cage, ...]
    """In the order of the register."""
    colour: str
    counted: int
    cats: int
    others: int
    asked_cage: str | None
    """The label, where one is asked for."""

    def grade(self, text: str, calls: Sequence[ToolCall] = ()) -> Grade:
        """The number, or the colour; a colour that another cage has is told from one that no cat has."""
        del calls
        if self.asked_cage is None:
            said = read_number(text)
            off = int(said.value or 0) - self.counted
            reason = Reason.WRONG if off else Reason.CORRECT
            return said.graded(self.expected, reason, f"off by {off:+d} of {self.counted}")
        said = read_answer(text, one_of(self.choices))
        right = (said.value or "").casefold() == self.expected
        elsewhere = any(cage.colour == (said.value or "").casefold() for cage in self.cages)
        wrong = Reason.OTHER_ITEM if elsewhere else Reason.WRONG
        return said.graded(self.expected, Reason.CORRECT if right else wrong, f"cage {self.asked_cage}")

    def summary(self) -> ContextItem:
        """The count as code makes it, for the arm that does not have to count."""
        counts = Counter(cage.colour for cage in self.cages if cage.animal == "cat")
        text = "\n".join(f"{colour} cats: {count}" for colour, count in sorted(counts.items(), key=str))
        return ContextItem(id="cat-count", payload=TaskStateText(text=text))

    def describe(self) -> str:
        """`cage count, seed 1: 100 cats in 2 colours, 0 other cages; white → 10`."""
        asked = f"{self.colour} cats" if self.asked_cage is None else f"cage {self.asked_cage}"
        return (
            f"cage count, seed {self.seed}: {self.cats} cats in 2 colours, {self.others} other cages; "
            f"{asked} → {self.expected}"
        )

    def distractors(self) -> Iterator[str]:
        """The lines that the answer does not follow from; for a count the whole register, which never says it."""
        for cage in self.cages:
            if cage.label != self.asked_cage and (self.asked_cage is None or cage.animal is None):
                yield cage.line


def cage_count(
    seed: int,
    *,
    cats: int = 100,
    counted: int | None = None,
    others: int = 0,
    page: int = 25,
    ask: CageAsk = CageAsk.COUNT,
) -> CageCount:
    """A register of `cats` + `others` cages in pages of `page`; without `counted`, about a tenth, by the seed.

    `others` are cages that are empty or hold another animal, half of these in the colour that is asked for.
    """
    if cats < 2 or others < 0 or page < 1 or (counted is not None and not 0 < counted < cats):
        raise UsageError(
            f"Expected at least 2 cats, pages of at least 1, and 0 < counted < cats, but cats={cats}, "
            f"counted={counted}, others={others}, page={page} came."
        )
    rng = draws("cage-count", seed)
    asked, other = rng.sample(COLOURS, 2)
    spread = max(1, cats // 20)
    drawn = max(1, min(cats - 1, round(cats / 10) + rng.randint(-spread, spread)))
    counted = drawn if counted is None else counted
    animals = [("cat", asked)] * counted + [("cat", other)] * (cats - counted)
    kept: list[tuple[str | None, str | None]] = [*animals, *(_other(rng, asked, n) for n in range(others))]
    rng.shuffle(kept)
    labels = letter_codes(rng, len(kept))
    cages = tuple(
        Cage(label=label, animal=animal, colour=colour)
        for label, (animal, colour) in zip(labels, kept, strict=True)
    )
    chosen = rng.choice([cage for cage in cages if cage.animal == "cat"])
    looked_up = ask is CageAsk.LOOK_UP
    question = (
        f"What colour is the cat in cage {chosen.label}? " + ANSWER_LINE.format(form="the colour")
        if looked_up
        else f"In how many cages is a {asked} cat? " + ANSWER_LINE.format(form="the number")
    )
    return CageCount(
        seed=seed,
        trajectory=Trajectory(
            system=SYSTEM, tools=TOOLS, turns=(*_read(rng, cages, page), UserTurn(text=question))
        ),
        expected=str(chosen.colour) if looked_up else str(counted),
        choices=COLOURS if looked_up else (),
        cages=cages,
        colour=asked,
        counted=counted,
        cats=cats,
        others=others,
        asked_cage=chosen.label if looked_up else None,
    )


def _other(rng: random.Random, colour: str, number: int) -> tuple[str | None, str | None]:
    if number % 3 == 2:
        return None, None
    return rng.choice(ANIMALS), colour if number % 3 == 0 else rng.choice(COLOURS)


def _read(rng: random.Random, cages: Sequence[Cage], page: int) -> Iterator[Turn]:
    """The register read part by part, each part named after a place so that no number stands in it."""
    yield UserTurn(text="Read the register to its end, please.")
    pages = [cages[start : start + page] for start in range(0, len(cages), page)]
    names = rng.sample(PLACES, len(PLACES))
    for place, part in enumerate(pages):
        round_of_names = place // len(names)
        name = names[place % len(names)] + " again" * round_of_names
        call = ToolCall(id=f"part-{place:03d}", name=READ, arguments=json.dumps({"part": name}))
        result = ToolResult(call_id=call.id, content="\n".join(cage.line for cage in part))
        yield ToolStep(calls=(call,), results=(result,), text=f"I read the {name}.")
