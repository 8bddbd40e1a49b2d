"""Whether each request of a run extends the one before, its answer included, and if not, for what cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from serving.call import MeasuredCall
from serving.explain import MissCause


@dataclass(frozen=True, slots=True)
class Extension:
    """How one request stands to the one before it."""

    of_prompt: bool
    """Its ids begin with all ids of that prompt."""
    of_answer: bool
    """They go on with all ids that were generated then."""
    cause: MissCause | None
    """Why not; None: it extends both, or what was generated is unknown."""


def extension(before: MeasuredCall, now: MeasuredCall) -> Extension:
    """Compare two requests of one run, the second sent right after the first."""
    prompt, ids = before.rendered.token_ids, now.rendered.token_ids
    answer = before.exchange.output_token_ids or ()
    of_prompt = ids[: len(prompt)] == prompt
    of_answer = of_prompt and ids[len(prompt) : len(prompt) + len(answer)] == answer
    if of_answer:
        return Extension(of_prompt, of_answer, None)
    finding = None if now.miss is None else now.miss.finding
    return Extension(of_prompt, of_answer, MissCause.UNKNOWN if finding is None else finding.cause)


def drifts(calls: Sequence[MeasuredCall]) -> Counter[MissCause]:
    """The requests of a run that do not extend the one before, by cause."""
    found = (extension(before, now) for before, now in pairwise(calls))
    return Counter(one.cause for one in found if one.cause is not None)
