"""The results of parallel calls come in the opposite order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby

from experiments.faults.base import FaultContext
from serving.assembler import Draft, DraftMessage, Invariant, Region


@dataclass(frozen=True, slots=True)
class ParallelResultsSwapped:
    """Costs no cache, since every request swaps alike; but most templates print no call ids.

    There the order alone says which result answers which call, and the model reads them crossed over.
    """

    name: str = "parallel-results-swapped"
    breaks: frozenset[Invariant] = frozenset({Invariant.RESULTS_IN_CALL_ORDER})

    @classmethod
    def build(cls, _context: FaultContext) -> ParallelResultsSwapped:
        """The fault for one call."""
        return cls()

    def apply(self, draft: Draft) -> Draft:
        """The draft with each run of tool results turned round."""
        messages: list[DraftMessage] = []
        for are_results, run in groupby(draft.messages, key=_is_result):
            together = list(run)
            messages.extend(reversed(together) if are_results else together)
        return replace(draft, messages=tuple(messages))


def _is_result(message: DraftMessage) -> bool:
    return message.region is Region.TRAJECTORY and message.message.role == "tool"
