from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from serving.assembler import (
    ContextPolicy,
    Draft,
    DraftMessage,
    Fault,
    FixedCounter,
    HandOff,
    HandOffReason,
    Invariant,
    Message,
    Packet,
    Region,
    RequestContext,
    ToolCall,
    ToolResult,
    ToolSpec,
    ToolStep,
    UserTurn,
    assemble,
)
from serving.assembler.trajectory import Trajectory
from serving.errors import LabError, UsageError

RUN = Trajectory(
    system="You repair code.",
    tools=(ToolSpec(name="run", description="Run.", parameters={}),),
    turns=(
        UserTurn(text="go"),
        ToolStep(
            calls=(ToolCall(id="c", name="run", arguments="{}"),),
            results=(ToolResult(call_id="c", content="x" * 40),),
        ),
    ),
)
CONTEXT = RequestContext(tenant="t1", actor="u1", now="2026-10-02T00:00:00Z")


@dataclass(frozen=True)
class Rebuild:
    """The null fault."""

    name: str = "null"
    breaks: frozenset[Invariant] = frozenset()

    def apply(self, draft: Draft) -> Draft:
        return replace(draft)


@dataclass(frozen=True)
class DropFirstTurns:
    """A sliding window that cuts without looking."""

    keep: int
    breaks: frozenset[Invariant]
    name: str = "sliding_window"

    def apply(self, draft: Draft) -> Draft:
        head = tuple(message for message in draft.messages if message.region is Region.HEAD)
        rest = tuple(message for message in draft.messages if message.region is not Region.HEAD)
        return replace(draft, messages=(*head, *rest[len(rest) - self.keep :]))


@dataclass(frozen=True)
class LongClock:
    """Text of no item in the system message."""

    text: str
    name: str = "clock"
    breaks: frozenset[Invariant] = frozenset({Invariant.STATIC_HEAD})

    def apply(self, draft: Draft) -> Draft:
        system, *rest = draft.messages
        spans = tuple(span.moved(len(self.text)) for span in system.spans)
        changed = system.message.model_copy(update={"content": f"{self.text}{system.message.content}"})
        return replace(draft, messages=(DraftMessage(changed, spans, system.region), *rest))


def outcome(*faults: Fault, window: int = 1_000, framing: int = 3) -> Packet | HandOff:
    request = RUN.request(1, context=CONTEXT, window=window, max_output=10)
    return assemble(request, ContextPolicy(), FixedCounter(framing_per_message=framing), faults)


def test_the_null_fault_rebuilds_the_same_bytes_and_is_listed() -> None:
    plain, rebuilt = outcome(), outcome(Rebuild())
    assert isinstance(plain, Packet)
    assert isinstance(rebuilt, Packet)
    assert (
        rebuilt.model_copy(update={"manifest": plain.manifest}).model_dump_json() == plain.model_dump_json()
    )
    assert rebuilt.manifest.packet_sha256 == plain.manifest.packet_sha256
    assert [fault.name for fault in rebuilt.manifest.faults] == ["null"]
    assert plain.manifest.faults == ()


def test_a_fault_that_declares_what_it_breaks_is_applied_and_counted() -> None:
    broken = (Invariant.APPEND_ONLY, Invariant.REQUIRED_PRESENT, Invariant.TOOL_CALLS_PAIRED)
    fault = DropFirstTurns(1, frozenset(broken))
    packet = outcome(fault)
    assert isinstance(packet, Packet)
    assert [message.role for message in packet.messages] == ["system", "tool"]
    tokens = {item.id: item.tokens for item in packet.manifest.selected}
    assert tokens["turn-000"] == 0
    assert tokens["turn-001"] > 0
    assert packet.manifest.faults[0].breaks == broken


def test_a_fault_that_breaks_more_than_it_declares_is_refused() -> None:
    with pytest.raises(LabError, match="sliding_window' breaks required_present, tool_calls_paired without"):
        outcome(DropFirstTurns(1, frozenset({Invariant.APPEND_ONLY})))


def test_a_fault_keeps_the_spans_of_the_text_that_it_moves() -> None:
    packet = outcome(LongClock("12:00 "))
    assert isinstance(packet, Packet)
    (span,) = [span for span in packet.spans if span.item_id == "system"]
    content = packet.messages[0].content or ""
    assert content == "12:00 You repair code."
    assert content[span.start : span.end] == "You repair code."


def test_a_fault_that_outgrows_the_window_ends_in_a_hand_off() -> None:
    @dataclass(frozen=True)
    class Repeat:
        name: str = "repeat"
        breaks: frozenset[Invariant] = frozenset()

        def apply(self, draft: Draft) -> Draft:
            extra = DraftMessage(Message(role="user", content="more"), (), Region.TRAJECTORY)
            return replace(draft, messages=(*draft.messages, *[extra] * 400))

    result = outcome(Repeat())
    assert isinstance(result, HandOff)
    assert result.reason is HandOffReason.FAULT_EXCEEDS_BUDGET
    assert result.shortfall == result.needed - 990


def test_something_that_is_no_fault_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="but a str came"):
        outcome("clock")  # type: ignore[arg-type]
