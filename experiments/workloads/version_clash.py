"""Versions that clash: one document in several editions with dates, and a question about one day."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from experiments.workloads.grading import ANSWER_LINE, DIGITS, Grade, Reason, read_answer
from experiments.workloads.scenario import Scenario, draws
from experiments.workloads.words import PLACES, codes
from serving.assembler import ContextItem, Evidence, Scope, ToolCall, Trajectory, UserTurn
from serving.assembler.record import Instant, Record
from serving.errors import UsageError

SYSTEM: Final = "You answer from the documents that you are shown. A document holds from its date on."


class Marking(StrEnum):
    """What the assembler is told of the versions."""

    DATES_ONLY = "dates_only"
    """Nothing: all versions are shown with their dates, and the reader has to choose."""
    SCOPED = "scoped"
    """From when until when each holds: only the one in force is shown."""
    SUPERSEDED = "superseded"
    """That the newest replaces the others: these are shown as a note. The newest is in force."""


class Version(Record):
    """One edition."""

    number: int
    value: str
    effective: Instant


class VersionClash(Scenario):
    """`versions` editions of one rule, of which number `in_force` holds on the day of the question."""

    versions: tuple[Version, ...]
    """Oldest first."""
    in_force: int
    """Index into `versions`."""
    marking: Marking

    def grade(self, text: str, calls: Sequence[ToolCall] = ()) -> Grade:
        """The number; that of an older edition is told from that of a later one and from any other number."""
        del calls
        said = read_answer(text, DIGITS)
        numbers = {version.value: index for index, version in enumerate(self.versions)}
        index = numbers.get(said.value or "")
        if index is None:
            return said.graded(self.expected, Reason.WRONG, "of no version")
        if index == self.in_force:
            return said.graded(self.expected, Reason.CORRECT, f"version {index + 1}, in force")
        reason = Reason.SUPERSEDED_VERSION if index < self.in_force else Reason.VERSION_NOT_IN_FORCE
        detail = f"version {index + 1} instead of {self.in_force + 1}"
        return said.graded(self.expected, reason, detail)

    def describe(self) -> str:
        """`version clash, seed 1: 3 versions (dates only), number 2 in force; → 482`."""
        return (
            f"version clash, seed {self.seed}: {len(self.versions)} versions "
            f"({self.marking.value.replace('_', ' ')}), number {self.in_force + 1} in force; → {self.expected}"
        )

    def distractors(self) -> Iterator[str]:
        """Every document but the version in force."""
        for item in self.items:
            if item.id != _item_id(self.in_force) and isinstance(item.payload, Evidence):
                yield item.payload.text


def version_clash(
    seed: int,
    *,
    versions: int = 2,
    other_documents: int = 2,
    marking: Marking = Marking.DATES_ONLY,
    newest: bool | None = None,
) -> VersionClash:
    """`versions` editions and other documents; without `newest`, even seeds ask for the newest and odd ones do not.

    With `Marking.SUPERSEDED` it is always the newest.
    """
    if not 2 <= versions <= 8 or not 0 <= other_documents < len(PLACES):
        raise UsageError(
            f"Expected 2 to 8 versions and fewer than {len(PLACES)} other documents, but versions={versions}, "
            f"other_documents={other_documents} came."
        )
    rng = draws("version-clash", seed)
    subject, *others = rng.sample(PLACES, len(PLACES))
    values = codes(rng, versions + len(others), digits=3)
    dates = _dates(rng, versions)
    editions = tuple(
        Version(number=number + 1, value=values[number], effective=dates[number])
        for number in range(versions)
    )
    is_newest = seed % 2 == 0 if newest is None else newest
    latest = marking is Marking.SUPERSEDED or is_newest
    in_force = versions - 1 if latest else rng.randrange(versions - 1)
    until = dates[in_force + 1] if in_force + 1 < versions else dates[in_force] + timedelta(days=60)
    asked = dates[in_force] + timedelta(days=rng.randint(1, (until - dates[in_force]).days - 1))
    documents = [_edition(editions, index, subject, marking) for index in range(versions)]
    documents += [_other(place, values[versions + n]) for n, place in enumerate(others[:other_documents])]
    question = f"How many visitors may be in the {subject} on {asked:%Y-%m-%d}? "
    return VersionClash(
        seed=seed,
        trajectory=Trajectory(
            system=SYSTEM, turns=(UserTurn(text=question + ANSWER_LINE.format(form="the number")),)
        ),
        items=tuple(documents),
        expected=editions[in_force].value,
        now=asked,
        versions=editions,
        in_force=in_force,
        marking=marking,
    )


def _dates(rng: random.Random, versions: int) -> list[datetime]:
    """One a half-year or so, oldest first."""
    begin = datetime(2023, 1, 1, tzinfo=UTC) + timedelta(days=rng.randrange(60))
    return [begin + timedelta(days=180 * number + rng.randrange(90)) for number in range(versions)]


def _item_id(index: int) -> str:
    return f"rule-v{index + 1}"


def _edition(versions: Sequence[Version], index: int, subject: str, marking: Marking) -> ContextItem:
    version = versions[index]
    scoped = marking is Marking.SCOPED
    later = versions[index + 1].effective if index + 1 < len(versions) else None
    is_newest = later is None and marking is Marking.SUPERSEDED
    return ContextItem(
        id=_item_id(index),
        payload=Evidence(
            text=f"In the {subject} there may be at most {version.value} visitors at a time.",
            document=f"house-rules/{subject.replace(' ', '-')}",
            effective_date=version.effective,
        ),
        version=str(version.number),
        scope=Scope(
            tenant="lab",
            effective_from=version.effective if scoped else None,
            effective_until=later if scoped else None,
        ),
        supersedes=tuple(_item_id(older) for older in range(index)) if is_newest else (),
        supersedes_reason="a newer version is in force" if is_newest else "",
    )


def _other(place: str, value: str) -> ContextItem:
    name = place.replace(" ", "-")
    return ContextItem(
        id=f"rule-{name}",
        payload=Evidence(
            text=f"In the {place} there may be at most {value} visitors at a time.",
            document=f"house-rules/{name}",
        ),
        scope=Scope(tenant="lab"),
    )
