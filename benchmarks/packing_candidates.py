"""The candidates that every packing library gets, in the terms of none, and what one of them made of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from serving.assembler import Terms, UtilityWeights
from serving.assembler.utility import utility

CANDIDATES: Final = 1_000
OF_EACH_TRAP: Final = 40
REQUIRED: Final = 10


class Trap(StrEnum):
    """What is wrong with a candidate, or right."""

    NONE = "plain"
    REQUIRED = "required"
    OTHER_TENANT = "of another tenant"
    SUPERSEDED = "superseded revisions"
    EXPIRED = "expired memories"
    COPY = "near copies"
    INJECTED = "likely injections"


@dataclass(frozen=True)
class Candidate:
    """A piece of context in the terms of no side."""

    id: str
    text: str
    tokens: int
    trap: Trap
    terms: Terms
    supersedes: str | None = None

    @property
    def worth(self) -> float:
        """The one number for sides that take one."""
        return utility(self.terms, UtilityWeights())


@dataclass(frozen=True)
class Outcome:
    """What one side did: ids kept, and the reason of every id that it says it left out."""

    kept: frozenset[str]
    reasons: dict[str, str] = field(default_factory=dict)
    notes: int = 0
    """Tokens spent on saying why a superseded source is not shown."""


def make_candidates(seed: int) -> list[Candidate]:
    """Candidates of every kind in a shuffled order; words are made up, so that none is a copy by chance."""
    rng = random.Random(seed)  # noqa: S311 - reproducible, not secret
    words = ["".join(rng.choices("aeioubcdfglmnprst", k=rng.randint(3, 9))) for _ in range(2_000)]
    made: list[Candidate] = []

    def add(name: str, trap: Trap, terms: Terms, text: str = "", supersedes: str | None = None) -> None:
        text = text or " ".join(rng.choices(words, k=rng.randint(50, 90)))
        made.append(Candidate(name, text, rng.randint(80, 120), trap, terms, supersedes))

    def terms(low: float, **penalties: float) -> Terms:
        given = {name: round(rng.uniform(low, 1), 3) for name in ("relevance", "authority", "freshness")}
        return Terms(**given, **penalties)

    for index in range(REQUIRED):
        add(f"required-{index}", Trap.REQUIRED, terms(0.3))
    for index in range(OF_EACH_TRAP):
        # All of them as attractive as they get: a side that knows nothing of the trap takes them.
        add(f"foreign-{index}", Trap.OTHER_TENANT, terms(0.9))
        add(f"revision-{index}-old", Trap.SUPERSEDED, terms(0.9))
        add(f"revision-{index}-new", Trap.NONE, terms(0.3), supersedes=f"revision-{index}-old")
        add(f"expired-{index}", Trap.EXPIRED, terms(0.9))
        add(f"original-{index}", Trap.NONE, terms(0.9))
        add(f"copy-{index}", Trap.COPY, terms(0.9, redundancy=1.0), text=f"{made[-1].text} again")
        add(f"injected-{index}", Trap.INJECTED, terms(0.9, injection_risk=1.0))
    for index in range(CANDIDATES - len(made)):
        add(f"plain-{index:03}", Trap.NONE, terms(0.0))
    rng.shuffle(made)
    return made
