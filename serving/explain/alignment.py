"""Two sequences side by side: their first change, and whether they go on together behind it.

One rule for messages of a history and for lines of a text. It goes by content alone: ids of items number the turns of
any conversation alike, so equal ids prove nothing, and a log has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from serving.text import common_prefix

_CANDIDATES = 8
"""How many places at which a changed sequence may go on are tried: short messages meet by accident."""


class Edit(NamedTuple):
    """The first change: [stored_from, stored_to) became [sent_from, sent_to)."""

    stored_from: int
    stored_to: int
    sent_from: int
    sent_to: int
    resumes: bool
    """Whether both sides go on alike behind it."""

    @property
    def removes(self) -> bool:
        """Whether parts went and none came, so that what follows moved up."""
        return self.resumes and self.sent_from == self.sent_to

    @property
    def inserts(self) -> bool:
        """Whether parts came and none went, so that what follows moved down."""
        return self.resumes and self.stored_from == self.stored_to


class Fragment(NamedTuple):
    """The first stretch of a text that became another, at the same character of both."""

    start: int
    was: str
    now: str
    extends: bool
    """Whether all lines behind it are there again, in their order, and more lines follow."""


def first_edit(stored: Sequence[str], sent: Sequence[str]) -> Edit | None:
    """The first change from `stored` to `sent`; None where `sent` begins with all of `stored`."""
    same = common_prefix(stored, sent)
    if same == len(stored):
        return None
    place = _resumes(stored[same:], sent[same:])
    if place is None:
        return Edit(same, len(stored), same, len(sent), resumes=False)
    return Edit(same, same + place[0], same, same + place[1], resumes=True)


def first_fragment(stored: str, sent: str) -> Fragment:
    """The first stretch that changed between two texts that are not equal."""
    start = common_prefix(stored, sent)
    old, new = stored[start:].split("\n"), sent[start:].split("\n")
    edit = first_edit(old, new)
    if edit is not None and edit.resumes and any(old[edit.stored_to :]):
        rest, more = old[edit.stored_to :], new[edit.sent_to :]
        extends = len(more) > len(rest) and more[: len(rest)] == rest
        was = "".join(f"{line}\n" for line in old[: edit.stored_to])
        now = "".join(f"{line}\n" for line in new[: edit.sent_to])
    else:
        was, now, extends = stored[start:], sent[start:], False
    end = common_prefix(was[::-1], now[::-1])
    return Fragment(start, was[: len(was) - end], now[: len(now) - end], extends)


def _resumes(old: Sequence[str], new: Sequence[str]) -> tuple[int, int] | None:
    """Where both go on together: the longest common run among the first few, in linear time."""
    first: dict[str, int] = {}
    for index, key in enumerate(old):
        first.setdefault(key, index)
    best: tuple[int, int, int] | None = None
    tried = place = 0
    while place < len(new) and tried < _CANDIDATES:
        index = first.get(new[place], -1)
        if index < 0:
            place += 1
            continue
        run = common_prefix(old[index:], new[place:])
        if best is None or run > best[0]:
            best = (run, index, place)
        tried += 1
        place += run
    return None if best is None else (best[1], best[2])
