"""What leaves the assembler: a `Packet` that fits, or a `HandOff` that says why there is none."""

from __future__ import annotations

from enum import StrEnum

from serving.assembler.carry import Carry
from serving.assembler.compaction.records import CompactionPlan
from serving.assembler.manifest import ContextManifest
from serving.assembler.messages import Message, MessagePath, PacketSpan, PathPart, Role, ToolCall, ToolSpec
from serving.assembler.record import Record

__all__ = [
    "HandOff",
    "HandOffReason",
    "LargestItem",
    "Message",
    "MessagePath",
    "Packet",
    "PacketSpan",
    "PathPart",
    "Role",
    "ToolCall",
    "ToolSpec",
]


class Packet(Record):
    """The complete input of one model call, and the item behind every leaf of it."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    spans: tuple[PacketSpan, ...]
    manifest: ContextManifest
    carry: Carry = Carry()
    """For the next request of the run, once this packet was sent."""
    compaction: CompactionPlan | None = None
    """Run it before the next request (`compaction.finish`), and add what comes of it to `carry`."""


class HandOffReason(StrEnum):
    """Why no packet was built."""

    REQUIRED_EXCEEDS_BUDGET = "required_exceeds_budget"
    """All optional detail is gone and the required items still do not fit."""
    FAULT_EXCEEDS_BUDGET = "fault_exceeds_budget"
    """The packet fitted, and a fault made it too large."""


class LargestItem(Record):
    """A required item and its rendered tokens."""

    id: str
    tokens: int


class HandOff(Record):
    """The call must not be made: a person or a compaction has to decide what to do without.

    `shortfall` is in tokens: what the rendered prompt has beyond the budget. The output reserve is never
    used.
    """

    reason: HandOffReason
    budget: int
    needed: int
    shortfall: int
    largest: tuple[LargestItem, ...]
    """Largest first, at most five."""
    manifest: ContextManifest
    """Of the packet that did not fit."""
    compaction: CompactionPlan | None = None
    """What would make room; run it, add what comes of it to the request's `carry`, and assemble again."""
