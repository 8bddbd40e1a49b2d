"""The ids under which a history knows its calls: the server's where it gave a new one, else made up here."""

from __future__ import annotations

from collections.abc import Collection


class CallIds:
    """Gives out ids in call order: equal calls in equal order get equal ids, streamed or read at the end."""

    def __init__(self, used: Collection[str]) -> None:
        self._taken = set(used)

    def give(self, received: str | None) -> str:
        """`received`, or `call-N` where that is missing or taken."""
        call_id = received
        number = len(self._taken)
        while not call_id or call_id in self._taken:
            call_id = f"call-{number}"
            number += 1
        self._taken.add(call_id)
        return call_id
