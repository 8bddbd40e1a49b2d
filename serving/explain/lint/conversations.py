"""Which earlier request of a log is the turn before: found by the messages both have."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from serving.explain.turn import JsonObject, message_key

_LOOK_BACK = 64
"""Messages from the end among which the turn before is looked for."""


class Conversations:
    """For every last message the latest request that ended with it: one number for each distinct one.

    The nearest request by ids is the wrong witness where something near the head changes with every request:
    of many conversations the one whose clock shows the most equal digits is nearest.
    """

    def __init__(self) -> None:
        self._ended_with: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._ended_with)

    def turn_before(self, messages: Sequence[JsonObject]) -> int | None:
        """The latest request whose last message is the last one here that any request ended with."""
        for message in reversed(messages[-_LOOK_BACK:]):
            if (found := self._ended_with.get(_digest(message))) is not None:
                return found
        return None

    def add(self, messages: Sequence[JsonObject], request: int) -> None:
        """Record that `request` ended with the last of these messages."""
        self._ended_with[_digest(messages[-1])] = request


def _digest(message: JsonObject) -> int:
    text = message_key(message).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
