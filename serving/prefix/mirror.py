"""A mirror of the server's block pool, folded from its KV events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from serving.errors import LabError
from serving.prefix.keys import event_key

BlockKey = bytes | int
"""A key as events carry it: the low 64 bits by default, else the 32 bytes (see `event_key`)."""


class BlocksStored(BaseModel):
    """Blocks became full and can serve hits; one more copy of a key that is there already is normal."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: tuple[BlockKey, ...]
    parent: BlockKey | None = None
    """The block before the first of them; None for the first block of a prompt, or where it is not told."""
    token_ids: tuple[int, ...] = ()
    """Of all these blocks, in order; empty where they are not told."""


class BlocksRemoved(BaseModel):
    """Blocks were given to someone else; each entry takes one copy of its key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: tuple[BlockKey, ...]


class AllBlocksCleared(BaseModel):
    """The whole prefix cache was reset."""

    model_config = ConfigDict(frozen=True, extra="forbid")


KVEvent = BlocksStored | BlocksRemoved | AllBlocksCleared


class PoolBlock(NamedTuple):
    """One block of the pool, as far as events told."""

    key: BlockKey
    position: int | None
    """Its place in the prompt, from 0; None where the chain to the first block is not known."""
    token_ids: tuple[int, ...]


class MirrorStep(NamedTuple):
    """What one batch of events did to the pool."""

    sequence: int
    missed: int
    """Batches that should have come before this one and did not."""
    stored: tuple[PoolBlock, ...]
    removed: tuple[PoolBlock, ...]
    cleared: int
    """Blocks that a reset took; 0 also where there was none to take."""
    copies: int
    """Blocks in the pool afterwards."""


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

    Batches are numbered from 0 without a gap. One that is missing, or a removal of a key that was never
    stored, makes the mirror incomplete: what it holds is then a guess, until `AllBlocksCleared` makes it
    true again.
    """

    def __init__(self) -> None:
        self._copies: Counter[BlockKey] = Counter()
        self._known: dict[BlockKey, PoolBlock] = {}
        self._next = 0
        self._complete = True

    @property
    def next_sequence(self) -> int:
        """The number of the batch that has to come next."""
        return self._next

    @property
    def complete(self) -> bool:
        """Whether nothing was missed since the pool was last known to be empty."""
        return self._complete

    @property
    def blocks(self) -> int:
        """Blocks in the pool, copies counted."""
        return self._copies.total()

    def apply(self, sequence: int, events: Sequence[KVEvent]) -> MirrorStep:
        """Fold one batch into the mirror and tell what it did."""
        missed = max(sequence - self._next, 0)
        self._complete = self._complete and sequence == self._next
        self._next = sequence + 1
        stored: list[PoolBlock] = []
        removed: list[PoolBlock] = []
        cleared = 0
        for event in events:
            match event:
                case BlocksStored():
                    stored += self._store(event)
                case BlocksRemoved(keys=keys):
                    removed += map(self._remove, keys)
                case AllBlocksCleared():
                    cleared += self.blocks
                    self._copies.clear()
                    self._known.clear()
                    self._complete = True
        return MirrorStep(sequence, missed, tuple(stored), tuple(removed), cleared, self.blocks)

    def contents(self) -> Counter[BlockKey]:
        """Count the copies of each key."""
        return Counter(self._copies)

    def difference(self, predicted: Mapping[bytes, int]) -> PoolDifference:
        """Compare with a predicted pool, copies by full key (`Predictor.contents`).

        Raises `EventsLostError` while the mirror is incomplete.
        """
        if not self._complete:
            raise EventsLostError(
                f"KV events must come without a gap, and some before batch {self._next} were missed: reset the "
                "prefix cache, or start the mirror with the server."
            )
        whole = any(isinstance(key, bytes) for key in self._copies)
        carried: Counter[BlockKey] = Counter()
        for key, copies in predicted.items():
            carried[key if whole else event_key(key)] += copies
        return PoolDifference(
            only_predicted=dict(carried - self._copies), only_on_server=dict(self._copies - carried)
        )

    def _store(self, event: BlocksStored) -> Iterator[PoolBlock]:
        before = None if event.parent is None else self._known.get(event.parent)
        first = 0 if event.parent is None else None
        if before is not None and before.position is not None:
            first = before.position + 1
        size = len(event.token_ids) // len(event.keys) if event.keys else 0
        for number, key in enumerate(event.keys):
            ids = event.token_ids[number * size : (number + 1) * size]
            block = PoolBlock(key, None if first is None else first + number, ids)
            self._copies[key] += 1
            self._known[key] = block
            yield block

    def _remove(self, key: BlockKey) -> PoolBlock:
        left = self._copies[key] - 1
        self._complete = self._complete and left >= 0
        if left > 0:
            self._copies[key] = left
            return self._known[key]
        del self._copies[key]
        return self._known.pop(key, PoolBlock(key, None, ()))
