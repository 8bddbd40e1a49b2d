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
    waiting = _unapplied(
        {item.id for item in history}, [one for made in compactions for one in made.replaced]
    )
    current = list(history)
    while waiting:
        present = {item.id: item for item in current}
        ready = [one for one in waiting if all(covered.id in present for covered in one.covers)]
        if not ready:
            gone = next(covered.id for covered in waiting[0].covers if covered.id not in present)
            raise UsageError(
                f"A compaction covers {gone}, which this log does not hold; send the whole log with it, or leave "
                "the compaction out."
            )
        for one in ready:
            _check_content(one, present)
        current = _replaced(current, ready)
        waiting = [one for one in waiting if one not in ready]
    return tuple(current)


def _unapplied(present: set[str], replaced: Sequence[Replaced]) -> list[Replaced]:
    """Those whose summary is neither here nor covered by a summary that is."""
    by_cover: dict[str, Replaced] = {}
    made = {one.item.id: one for one in replaced}
    for one in made.values():
        for covered in one.covers:
            other = by_cover.setdefault(covered.id, one)
            if other is not one:
                raise UsageError(
                    f"Nothing is compacted twice, but {covered.id} is covered by {other.item.id} and by "
                    f"{one.item.id}; keep one of the two compactions."
                )

    def applied(one: Replaced) -> bool:
        while one.item.id not in present:
            if (over := by_cover.get(one.item.id)) is None:
                return False
            one = over
        return True

    return [one for one in made.values() if not applied(one)]


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
