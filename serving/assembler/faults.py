"""Named sabotage: what a `Fault` is, which invariants it may break, and the check that it breaks no other.

The library holds no fault. Experiments implement the protocol; each fault is applied to the finished
layout, and the manifest lists it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

from serving.assembler.draft import Draft
from serving.assembler.kinds import Region
from serving.assembler.manifest import FaultRecord
from serving.assembler.messages import item_of
from serving.assembler.payloads import pairing_problem
from serving.errors import LabError, UsageError


class Invariant(StrEnum):
    """What every packet of the assembler keeps; a fault names those that it breaks."""

    ONE_SYSTEM_MESSAGE = "one_system_message"
    """At most one system message, and it is the first message. Checked."""
    TOOL_CALLS_PAIRED = "tool_calls_paired"
    """Every tool call is opened and closed, parallel ones included. Checked."""
    RESULTS_IN_CALL_ORDER = "results_in_call_order"
    """Results of parallel calls stand in the order of the calls: few templates print the ids. Checked."""
    STATIC_HEAD = "static_head"
    """System message, tools and examples hold nothing that changes from call to call."""
    TOOLS_FIXED = "tools_fixed"
    """The same tools in the same order in every call."""
    APPEND_ONLY = "append_only"
    """The trajectory of a call extends that of the call before."""
    STRUCTURE_KEPT = "structure_kept"
    """A turn is sent in the role and form in which it happened, not as flattened text."""
    ARGUMENTS_VERBATIM = "arguments_verbatim"
    """Tool arguments are sent in the bytes in which they came."""
    REASONING_ECHOED = "reasoning_echoed"
    """Reasoning is sent back as the policy says."""
    REPLACEMENTS_FROZEN = "replacements_frozen"
    """A text that stands for a longer one never changes after its first appearance."""
    REQUIRED_PRESENT = "required_present"
    """Every required item is in the packet. Checked for what was laid out in head, tools and trajectory."""


@runtime_checkable
class Fault(Protocol):
    """A pure step from one draft to another; it may read its own constructor arguments and nothing else.

    A draft's messages carry their spans, so a fault that moves, drops or repeats messages need not mind
    them; text of its own belongs to no item and gets no span.
    """

    @property
    def name(self) -> str:
        """The name in the manifest and in an arm's `fault.*` factor."""

    @property
    def breaks(self) -> frozenset[Invariant]:
        """The invariants that this fault is meant to break; empty for the null fault."""

    def apply(self, draft: Draft) -> Draft:
        """The sabotaged draft."""


def lost_items(before: Draft, after: Draft) -> frozenset[str]:
    """Items of head, tools and trajectory, all of which are required, that a fault took out of the packet."""

    def present(draft: Draft, *regions: Region) -> set[str]:
        messages = (message for message in draft.messages if message.region in regions)
        spans = [span.item_id for message in messages for span in message.spans]
        return {item_of(owner) for owner in [*spans, *(tool.item_id for tool in draft.tools)]}

    return frozenset(present(before, Region.HEAD, Region.TRAJECTORY) - present(after, *Region))


def broken_invariants(draft: Draft) -> frozenset[Invariant]:
    """Those invariants that one packet alone can show to be broken."""
    roles = [message.message.role for message in draft.messages]
    broken: set[Invariant] = set()
    if any(role in ("system", "developer") for role in roles[1:]):
        broken.add(Invariant.ONE_SYSTEM_MESSAGE)
    if pairing_problem(draft.plain_messages()):
        broken.add(Invariant.TOOL_CALLS_PAIRED)
    if _results_out_of_order(draft):
        broken.add(Invariant.RESULTS_IN_CALL_ORDER)
    return frozenset(broken)


def _results_out_of_order(draft: Draft) -> bool:
    """Whether a result of the trajectory stands before that of an earlier call of the same message."""
    place: dict[str, int] = {}
    reached = -1
    for message in draft.messages:
        if message.region is not Region.TRAJECTORY:
            continue  # an example is shown in the order in which its author wrote it
        if message.message.role != "tool":
            place = {call.id: index for index, call in enumerate(message.message.tool_calls)}
            reached = -1
        elif (index := place.get(message.message.tool_call_id or "")) is not None:
            if index < reached:
                return True
            reached = index
    return False


def apply_faults(draft: Draft, faults: Sequence[Fault]) -> Draft:
    """Apply `faults` in order; `LabError` where one breaks a checked invariant that none of them declares."""
    declared: set[Invariant] = set()
    laid_out = draft
    for fault in faults:
        if not isinstance(fault, Fault):
            raise UsageError(f"A fault has 'name', 'breaks' and 'apply', but a {type(fault).__name__} came.")
        declared |= fault.breaks
        draft = fault.apply(draft)
        broken = broken_invariants(draft)
        if lost_items(laid_out, draft):
            broken |= {Invariant.REQUIRED_PRESENT}
        if undeclared := broken - declared:
            names = ", ".join(sorted(undeclared))
            raise LabError(
                f"The fault '{fault.name}' breaks {names} without declaring it; add it to its 'breaks', or "
                "repair the fault."
            )
    return draft


def fault_records(faults: Sequence[Fault]) -> tuple[FaultRecord, ...]:
    """What the manifest keeps of the faults, in the order of applying."""
    return tuple(FaultRecord(name=fault.name, breaks=tuple(sorted(fault.breaks))) for fault in faults)
