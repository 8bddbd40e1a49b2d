"""A mirror of the server's block pool, folded from its KV events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict

from serving.errors import LabError

BlockKey = bytes | int
"""A key as events carry it: the low 64 bits by default, else the 32 bytes (see `event_key`)."""


class BlocksStored(BaseModel):
    """Blocks became full and can serve hits; one more copy of a key that is there already is normal."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: tuple[BlockKey, ...]


class BlocksRemoved(BaseModel):
    """Blocks were given to someone else; each entry takes one copy of its key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: tuple[BlockKey, ...]


class AllBlocksCleared(BaseModel):
    """The whole prefix cache was reset."""

    model_config = ConfigDict(frozen=True, extra="forbid")


KVEvent = BlocksStored | BlocksRemoved | AllBlocksCleared


class EventsLostError(LabError):
    """The mirror missed events and says nothing true any more until the cache is reset."""


class PoolDifference(BaseModel):
    """Where a predicted pool and the mirrored one disagree, in copies per key; empty when they agree."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    only_predicted: dict[BlockKey, int]
    only_on_server: dict[BlockKey, int]

    @property
    def agrees(self) -> bool:
        """Whether both hold the same keys, as often."""
        return not self.only_predicted and not self.only_on_server


class PoolMirror:
    """A live copy of the keys in a server's block pool: a multiset, since equal blocks have copies.

    Batches carry consecutive sequence numbers; `apply` raises `EventsLostError` when one is skipped or when
    a key is removed that was never stored. A later `AllBlocksCleared` makes the mirror true again.
    """

    def __init__(self) -> None:
        self._copies: Counter[BlockKey] = Counter()
        self._next: int | None = None
        self._lost = False

    def apply(self, sequence: int, events: Sequence[KVEvent]) -> None:
        """Fold one batch into the mirror."""
        self._lost = self._lost or (self._next is not None and sequence != self._next)
        self._next = sequence + 1
        for event in events:
            match event:
                case BlocksStored(keys=keys):
                    self._copies.update(keys)
                case BlocksRemoved(keys=keys):
                    self._remove(keys)
                case AllBlocksCleared():
                    self._copies.clear()
                    self._lost = False
        if self._lost:
            raise EventsLostError(
                f"KV events must come without a gap; batch {sequence} does not follow what came before. "
                "Reset the prefix cache, or start the mirror before the first request."
            )

    def contents(self) -> Counter[BlockKey]:
        """Count the copies of each key."""
        return Counter(self._copies)

    def difference(self, predicted: Counter[BlockKey]) -> PoolDifference:
        """Compare with a predicted pool whose keys have the form that the events carry."""
        return PoolDifference(
            only_predicted=dict(predicted - self._copies), only_on_server=dict(self._copies - predicted)
        )

    def _remove(self, keys: Iterable[BlockKey]) -> None:
        for key in keys:
            left = self._copies[key] - 1
            self._lost = self._lost or left < 0
            if left > 0:
                self._copies[key] = left
            else:
                del self._copies[key]
