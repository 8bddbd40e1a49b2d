"""A mapping that forgets: what was not asked for longest goes first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """At most `capacity` units of values, in a unit of the caller's (entries, characters, tokens).

    Threads may share it: values are handed out as they were put in, so they must be immutable.
    """

    def __init__(self, capacity: int, forgotten: Callable[[Key, Value], object] | None = None) -> None:
        """Args: `forgotten` is told of each value that has to go."""
        self._capacity = capacity
        self._forgotten = forgotten
        self._used = 0
        self._entries: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        """The value, which counts as asked for now; None where it is not (or no longer) kept."""
        with self._lock:
            if (entry := self._entries.get(key)) is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def pop(self, key: Key) -> Value | None:
        """The value, which is not kept any more."""
        with self._lock:
            if (entry := self._entries.pop(key, None)) is None:
                return None
            self._used -= entry[1]
            return entry[0]

    def put(self, key: Key, value: Value, size: int = 1) -> None:
        """Keep `value`, and forget others until all fit; one larger than the capacity is not kept."""
        with self._lock:
            if (old := self._entries.pop(key, None)) is not None:
                self._used -= old[1]
            if size > self._capacity:
                return
            self._entries[key] = (value, size)
            self._used += size
            gone = []
            while self._used > self._capacity:
                oldest, (old_value, freed) = self._entries.popitem(last=False)
                self._used -= freed
                gone.append((oldest, old_value))
        if self._forgotten is not None:
            for old_key, old_value in gone:
                self._forgotten(old_key, old_value)

    def values(self) -> list[Value]:
        """All that is kept, most recent first."""
        with self._lock:
            return [value for value, _ in reversed(self._entries.values())]
