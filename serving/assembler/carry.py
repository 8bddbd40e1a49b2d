"""`Carry`: what the packets of a run have fixed so far, handed from each packet to the next request.

The log of turns only grows and is always handed in whole. What a packet showed in its place (a masked result, a
status bar that stays) is bytes that a server has cached, so the next packet must show the same.
"""

from __future__ import annotations

from pydantic import Field

from serving.assembler.compaction.records import Compaction, CompactionFailure
from serving.assembler.items import ContextItem
from serving.assembler.record import Record


class PlacedBar(Record):
    """A status bar that stays in the history, behind the item that was last when it was sent."""

    after: str | None
    """An item id of the log; None: before its first item."""
    item: ContextItem


class Carry(Record):
    """Empty for the first request of a run, then `Packet.carry` of the packet that was sent last.

    To be stored with the run: with it, a run goes on after a restart in the bytes that it had.
    """

    masked: dict[str, str] = Field(default_factory=dict)
    """Span owner → text of every tool result masked so far (`MaskingPlan.frozen`)."""
    bars: tuple[PlacedBar, ...] = ()
    """Oldest first; only `BarMode.APPEND` leaves any."""
    compactions: tuple[Compaction, ...] = ()
    """What stands for which part of the log; the caller adds one (`with_compaction`) when it ran a plan."""
    failures: tuple[CompactionFailure, ...] = ()
    """Plans that came to nothing, oldest first; the breaker counts them."""

    def with_compaction(self, result: Compaction | CompactionFailure) -> Carry:
        """The carry after a plan was run, whatever came of it."""
        if isinstance(result, Compaction):
            return self.model_copy(update={"compactions": (*self.compactions, result)})
        return self.model_copy(update={"failures": (*self.failures, result)})
