"""The log with summaries in the place of what they cover, checked by hash; the log itself never changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from serving.assembler.compaction.records import Compaction, Replaced
from serving.assembler.items import ContextItem
from serving.errors import UsageError

_HASH_CHARACTERS = 12


def apply_compactions(
    history: Sequence[ContextItem], compactions: Sequence[Compaction]
) -> tuple[ContextItem, ...]:
    """`history` as it is sent: every summary at the place of its first covered item, all else where it was.

    `history` is the whole log, before any gate or masking; what was appended after a plan was made stays. The
    order of `compactions` does not matter, and applying them twice changes nothing more. `UsageError` when an
    item is covered twice, or when the log no longer holds what was covered.
    """
    current, stuck = _applied(history, compactions)
    if stuck:
        present = {item.id for item in current}
        gone = next(covered.id for covered in stuck[0].covers if covered.id not in present)
        raise UsageError(
            f"A compaction covers {gone}, which this log does not hold; send the whole log with it, or leave "
            "the compaction out."
        )
    return current


def apply_where_readable(
    history: Sequence[ContextItem], compactions: Sequence[Compaction]
) -> tuple[ContextItem, ...]:
    """The same for a log from which a gate took items: a compaction of items that are gone does nothing.

    All that one summary covers has one scope, so a reader has all of it or nothing.
    """
    return _applied(history, compactions)[0]


def _applied(
    history: Sequence[ContextItem], compactions: Sequence[Compaction]
) -> tuple[tuple[ContextItem, ...], list[Replaced]]:
    """The log with what could be applied, and the rest."""
    waiting = _unapplied(
        {item.id for item in history}, [one for made in compactions for one in made.replaced]
    )
    current = list(history)
    while waiting:
        present = {item.id: item for item in current}
        # A checkpoint that extends another waits until that one stands.
        ready = [one for one in waiting if all(covered.id in present for covered in one.covers)]
        if not ready:
            break
        for one in ready:
            _check_content(one, present)
        current = _replaced(current, ready)
        placed = {one.item.id for one in ready}
        waiting = [one for one in waiting if one.item.id not in placed]
    return tuple(current), waiting


def _unapplied(present: set[str], replaced: Sequence[Replaced]) -> list[Replaced]:
    """Those whose summary is neither here nor covered, in one or more steps, by one that is."""
    made = {one.item.id: one for one in replaced}
    over: dict[str, str] = {}
    for one in made.values():
        for covered in one.covers:
            other = over.setdefault(covered.id, one.item.id)
            if other != one.item.id:
                raise UsageError(
                    f"Nothing is compacted twice, but {covered.id} is covered by {other} and by {one.item.id}; "
                    "keep one of the two compactions."
                )

    def standing(item_id: str) -> bool:
        seen: set[str] = set()
        here: str | None = item_id
        while here is not None and here not in seen:
            if here in present:
                return True
            seen.add(here)
            here = over.get(here)
        return False

    return [one for one in made.values() if not standing(one.item.id)]


def _check_content(one: Replaced, present: dict[str, ContextItem]) -> None:
    for covered in one.covers:
        found = present[covered.id].sha256
        if found != covered.sha256:
            raise UsageError(
                f"{one.item.id} was made for {covered.id} with content {covered.sha256[:_HASH_CHARACTERS]}, but "
                f"this log holds {found[:_HASH_CHARACTERS]}; compact again."
            )


def _replaced(current: Iterable[ContextItem], ready: Sequence[Replaced]) -> list[ContextItem]:
    summary_of = {covered.id: one.item for one in ready for covered in one.covers}
    placed: set[str] = set()
    after: list[ContextItem] = []
    for item in current:
        summary = summary_of.get(item.id)
        if summary is None:
            after.append(item)
        elif summary.id not in placed:
            placed.add(summary.id)
            after.append(summary)
    return after
