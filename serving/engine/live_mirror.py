"""A pool mirror that follows a running engine: catches up, fills gaps, and notices a restart."""

from __future__ import annotations

import time
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from serving.engine.subscription import EventBatch, KVEventSubscription
from serving.prefix import MirrorStep, PoolMirror

_ASK_EVERY_S = 1.0


class Notice(StrEnum):
    """What a follower of events has to know beside the events."""

    CAUGHT_UP = "caught up from the engine's replay"
    GAP_FILLED = "a gap was filled from the engine's replay"
    LOST = "batches were lost: the mirror is incomplete until the cache is reset"
    RESTARTED = "the engine was started anew: the mirror begins again"
    TRUE_AGAIN = "the cache was reset: the mirror is complete again"


class Change(NamedTuple):
    """One batch, folded, and what has to be said about it."""

    at: float
    """The engine's clock, seconds since the epoch."""
    step: MirrorStep
    notices: tuple[Notice, ...]


class LiveMirror:
    """Follows one subscription; `mirror` is the pool as far as the batches read so far tell.

    An engine that keeps a replay can be followed from any moment on: what came before is fetched. Without
    one, a mirror that was not there from the start is incomplete, and says so.
    """

    def __init__(self, subscription: KVEventSubscription) -> None:
        self.mirror = PoolMirror()
        self._subscription = subscription
        self._joined = False
        self._ask_again = 0.0
        self._last_at = 0.0

    def advance(self, timeout_s: float) -> list[Change]:
        """Fold what has come, waiting up to `timeout_s` for it; empty when nothing came.

        Raises: LabError for events in an unknown form.
        """
        changes = [] if self._joined else self._catch_up()
        for batch in self._subscription.receive(0.0 if changes else timeout_s):
            self._joined = True
            if batch.sequence < self.mirror.next_sequence and batch.at > self._last_at:
                changes += self._begin_again(batch)
                continue
            if batch.sequence > self.mirror.next_sequence:
                missed = self._subscription.replay(self.mirror.next_sequence)
                changes += self._fold(missed, because=Notice.GAP_FILLED)
            changes += self._fold([batch])
        return changes

    def _catch_up(self) -> list[Change]:
        """Ask for what is missing, once a second: until a batch came by itself, the line may not stand yet."""
        if time.monotonic() < self._ask_again:
            return []
        because = Notice.GAP_FILLED if self._ask_again else Notice.CAUGHT_UP
        changes = self._fold(self._subscription.replay(self.mirror.next_sequence), because=because)
        self._ask_again = time.monotonic() + _ASK_EVERY_S
        return changes

    def _begin_again(self, batch: EventBatch) -> list[Change]:
        self.mirror = PoolMirror()
        before = self._subscription.replay(0) if batch.sequence > 0 else ()
        changes = self._fold([*before, batch])
        first = changes[0]
        return [first._replace(notices=(Notice.RESTARTED, *first.notices)), *changes[1:]]

    def _fold(self, batches: Iterable[EventBatch], because: Notice | None = None) -> list[Change]:
        """Fold the batches that the mirror has not seen yet: a replay and the live line overlap."""
        changes: list[Change] = []
        for batch in batches:
            if batch.sequence < self.mirror.next_sequence:
                continue
            was_complete = self.mirror.complete
            step = self.mirror.apply(batch.sequence, batch.events)
            notices = [because] if because is not None and not changes and not step.missed else []
            if was_complete != self.mirror.complete:
                notices.append(Notice.TRUE_AGAIN if self.mirror.complete else Notice.LOST)
            changes.append(Change(batch.at, step, tuple(notices)))
            self._last_at = batch.at
        return changes
