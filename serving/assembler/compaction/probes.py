"""Continuation probes: can an agent that reads only the compacted context still go on?

Graded by code alone: words that must still be there, and for a claim the id that must still be named with it.
A probe says what the log knew; it does not say that a model will use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TypeAlias

from pydantic import Field

from serving.assembler.compaction.apply import apply_compactions
from serving.assembler.compaction.records import Compaction
from serving.assembler.compaction.survey import sources_of
from serving.assembler.items import ContextItem
from serving.assembler.messages import item_of
from serving.assembler.payloads import Summary, Text
from serving.assembler.record import Record
from serving.errors import UsageError


class ProbeKind(StrEnum):
    """What an agent must still know."""

    CURRENT_GOAL = "current_goal"
    NEXT_ACTION = "next_action"
    CHANGED_FILE = "changed_file"
    REJECTED_DECISION = "rejected_decision"
    """And why."""
    CLAIM_SOURCE = "claim_source"
    PENDING_APPROVAL = "pending_approval"
    RARE_CONSTRAINT = "rare_constraint"
    """Planted at the start, never said again."""


class Probe(Record):
    """One question with the answer that the log holds."""

    kind: ProbeKind
    needles: tuple[Text, ...] = Field(min_length=1)
    """All must be there, letter by letter."""
    source: str | None = None
    """The item that says so, which must be named with the words; None: the words alone are the answer."""


class Outcome(StrEnum):
    """How well a probe is answered, the best first."""

    VERBATIM = "verbatim"
    """In an item that is not a summary."""
    SUMMARISED = "summarised"
    """In a summary; with its source, where the probe asks for one."""
    SOURCE_LOST = "source_lost"
    """The words are there, and nothing says where they are from."""
    LOST = "lost"


class Grade(Record):
    """One graded probe."""

    probe: Probe
    outcome: Outcome

    @property
    def answered(self) -> bool:
        """Whether the compacted context still holds the whole answer."""
        return self.outcome in (Outcome.VERBATIM, Outcome.SUMMARISED)


Scores: TypeAlias = Mapping[ProbeKind, float]
"""Share of answered probes by kind; kinds without a probe are absent."""


def grade(
    history: Sequence[ContextItem], compactions: Sequence[Compaction], probes: Sequence[Probe]
) -> tuple[Grade, ...]:
    """Every probe against the compacted log, in the order given.

    `UsageError` for a probe that the log itself does not answer: it would blame the compaction.
    """
    current = apply_compactions(history, compactions)
    for probe in probes:
        if _outcome(history, probe) is not Outcome.VERBATIM:
            raise UsageError(
                f"A probe asks for what the log says, but its {probe.kind.value} with "
                f"{', '.join(map(repr, probe.needles))} is not there before any compaction; repair the probe."
            )
    return tuple(Grade(probe=probe, outcome=_outcome(current, probe)) for probe in probes)


def scores(grades: Sequence[Grade]) -> Scores:
    """The share of answered probes of every kind."""
    kinds = {kind: [grade.answered for grade in grades if grade.probe.kind is kind] for kind in ProbeKind}
    return {kind: sum(answered) / len(answered) for kind, answered in kinds.items() if answered}


def _outcome(items: Sequence[ContextItem], probe: Probe) -> Outcome:
    """The worst over all needles: a decision without its reason is lost."""
    order = list(Outcome)
    return max((_found(items, needle, probe.source) for needle in probe.needles), key=order.index)


def _found(items: Sequence[ContextItem], needle: str, source: str | None) -> Outcome:
    outcomes = {
        _in_summary(item.payload, needle, source)
        if isinstance(item.payload, Summary)
        else _in_item(item, needle, source)
        for item in items
    }
    return next((outcome for outcome in Outcome if outcome in outcomes), Outcome.LOST)


def _in_item(item: ContextItem, needle: str, source: str | None) -> Outcome:
    named = [part.id for part in sources_of(item) if needle in part.text]
    if not named and needle in getattr(item.payload, "text", ""):
        named = [item.id]
    if not named:
        return Outcome.LOST
    return Outcome.VERBATIM if source in (None, item.id, *named) else Outcome.SOURCE_LOST


def _in_summary(summary: Summary, needle: str, source: str | None) -> Outcome:
    if needle not in summary.text:
        return Outcome.LOST
    if source is None:
        return Outcome.SUMMARISED
    citing = {
        name
        for claim in summary.claims
        if needle in claim.text
        for cited in claim.sources
        for name in (cited, item_of(cited))
    }
    # A summary of one item alone names its source by standing for it.
    single = item_of(summary.covers[0]) if len(summary.covers) == 1 else None
    return Outcome.SUMMARISED if source in citing or source == single else Outcome.SOURCE_LOST
