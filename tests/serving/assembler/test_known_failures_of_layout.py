"""Failures that other tools are known for, as far as layout and faults could repeat them: each by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import pytest

from serving.assembler import (
    AssemblyRequest,
    ContextItem,
    ContextPolicy,
    Draft,
    DraftMessage,
    Example,
    FixedCounter,
    HandOff,
    Instruction,
    Invariant,
    Message,
    Packet,
    Region,
    RequestContext,
    SuffixPosition,
    ToolCall,
    ToolResult,
    ToolSpec,
    ToolStep,
    Trajectory,
    UserTurn,
    assemble,
    history_items,
    turns_from_messages,
)
from serving.assembler.faults import broken_invariants
from serving.assembler.layout import OPEN_CALL_TEXT
from serving.assembler.messages import Role
from serving.errors import LabError, UsageError

CONTEXT = RequestContext(tenant="t1", actor="u1", now="2026-10-02T00:00:00Z")
SYSTEM = "You repair code."


def step(number: int, calls: int, results: int) -> ToolStep:
    ids = [f"c{number}-{place}" for place in range(calls)]
    return ToolStep(
        calls=tuple(ToolCall(id=call_id, name="run", arguments="{}") for call_id in ids),
        results=tuple(ToolResult(call_id=call_id, content=f"out of {call_id}") for call_id in ids[:results]),
        text=f"Step {number}.",
    )


RUN = Trajectory(
    system=SYSTEM,
    tools=(ToolSpec(name="run", description="Run.", parameters={}),),
    turns=(UserTurn(text="go"), step(0, 1, 1), step(1, 2, 2), UserTurn(text="on"), step(2, 3, 3)),
)


@dataclass(frozen=True)
class Edit:
    """A fault that says it breaks nothing but what every trimming breaks."""

    edit: Callable[[tuple[DraftMessage, ...]], tuple[DraftMessage, ...]]
    breaks: frozenset[Invariant] = frozenset({Invariant.APPEND_ONLY, Invariant.REQUIRED_PRESENT})
    name: str = "edit"

    def apply(self, draft: Draft) -> Draft:
        return replace(draft, messages=self.edit(draft.messages))


def outcome(*faults: Edit, window: int = 10_000, policy: ContextPolicy | None = None) -> Packet | HandOff:
    request = RUN.request(3, context=CONTEXT, window=window, max_output=10)
    return assemble(request, policy or ContextPolicy(), FixedCounter(), faults)


def roles(packet: Packet) -> list[str]:
    return [message.role for message in packet.messages]


@pytest.mark.parametrize("position", SuffixPosition)
def test_the_system_prompt_is_never_lost_however_small_the_window(position: SuffixPosition) -> None:
    policy = ContextPolicy(suffix_position=position)
    endings = [outcome(window=window, policy=policy) for window in range(11, 120, 4)]
    packets = [ending for ending in endings if isinstance(ending, Packet)]
    assert 0 < len(packets) < len(endings)
    for packet in packets:
        assert packet.messages[0] == Message(role="system", content=SYSTEM)
    for ending in endings:
        assert "system" in [item.id for item in ending.manifest.selected]


def test_a_fault_that_loses_the_system_prompt_must_say_so() -> None:
    silent = Edit(lambda messages: messages[1:], breaks=frozenset({Invariant.APPEND_ONLY}))
    with pytest.raises(LabError, match="breaks required_present without declaring it"):
        outcome(silent)
    honest = outcome(Edit(lambda messages: messages[1:]))
    assert isinstance(honest, Packet)
    assert "system" not in roles(honest)
    assert {item.id: item.tokens for item in honest.manifest.selected}["system"] == 0


def test_the_system_prompt_is_not_doubled_where_rules_come_from_several_owners() -> None:
    rules = tuple(
        ContextItem(id=f"rule-{number}", payload=Instruction(text=f"Rule {number}."), owner=f"team-{number}")
        for number in range(4)
    )
    request = AssemblyRequest(
        context=CONTEXT,
        candidates=rules,
        history=history_items([UserTurn(text="go")]),
        window=1_000,
        max_output=10,
    )
    packet = assemble(request, ContextPolicy(), FixedCounter())
    assert isinstance(packet, Packet)
    assert roles(packet) == ["system", "user"]
    assert packet.messages[0].content == "\n\n".join(f"Rule {number}." for number in range(4))


@pytest.mark.parametrize("place", range(1, 9))
def test_a_fault_that_doubles_the_system_prompt_must_say_so(place: int) -> None:
    def doubled(messages: tuple[DraftMessage, ...]) -> tuple[DraftMessage, ...]:
        return (*messages[:place], messages[0], *messages[place:])

    with pytest.raises(LabError, match="breaks one_system_message"):
        outcome(Edit(doubled))


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_system_message_in_the_middle_is_not_taken_for_the_system_prompt(role: Role) -> None:
    late = Message(role=role, content="New rules.")
    log = [Message(role="user", content="go"), late, Message(role="assistant", content="done")]
    with pytest.raises(UsageError, match=f"message 1 is a {role} message"):
        turns_from_messages(log)
    with pytest.raises(UsageError, match="not a system message"):
        Example(messages=(log[0], late, log[2]))
    with pytest.raises(UsageError, match="rules stand in the one system message"):
        assemble(
            AssemblyRequest(
                context=CONTEXT,
                history=(ContextItem(id="late", payload=Instruction(text="New rules.")),),
                window=100,
                max_output=1,
            ),
            ContextPolicy(),
            FixedCounter(),
        )
    with pytest.raises(LabError, match="breaks one_system_message"):
        outcome(Edit(lambda messages: (*messages, DraftMessage(late, (), Region.TRAJECTORY))))


def test_trimming_leaves_no_orphan_result_at_the_head() -> None:
    whole = outcome()
    assert isinstance(whole, Packet)
    ended = {True: 0, False: 0}
    for cut in range(1, len(whole.messages)):
        trimmed = whole.messages[cut:]
        orphan = trimmed[0].role == "tool"
        if orphan:
            with pytest.raises(LabError, match="breaks tool_calls_paired"):
                outcome(Edit(lambda messages, cut=cut: (messages[0], *messages[cut:])))  # type: ignore[misc]
            with pytest.raises(UsageError, match="tool result without its call"):
                turns_from_messages(trimmed)
        else:
            assert isinstance(outcome(Edit(lambda m, cut=cut: (m[0], *m[cut:]))), Packet)  # type: ignore[misc]
            assert turns_from_messages(trimmed)
        ended[orphan] += 1
    assert ended == {True: 6, False: 5}


@pytest.mark.parametrize("lost", range(3))
def test_one_of_several_parallel_results_is_never_lost_alone(lost: int) -> None:
    last = [f"c2-{place}" for place in range(3)]

    def without(messages: tuple[DraftMessage, ...]) -> tuple[DraftMessage, ...]:
        return tuple(message for message in messages if message.message.tool_call_id != last[lost])

    turns = RUN.turns[:4]
    whole = Trajectory(system=SYSTEM, turns=(*turns, step(2, 3, 3), UserTurn(text="and?")))
    request = whole.request(4 - 1, context=CONTEXT, window=1_000, max_output=10)
    with pytest.raises(LabError, match="breaks tool_calls_paired"):
        assemble(request, ContextPolicy(), FixedCounter(), [Edit(without)])
    packet = assemble(request, ContextPolicy(), FixedCounter())
    assert isinstance(packet, Packet)
    log = [message for message in packet.messages[1:] if message.tool_call_id != last[lost]]
    with pytest.raises(UsageError, match=f"{last[lost]} has no result"):
        turns_from_messages(log)


@pytest.mark.parametrize(("calls", "results"), [(n, m) for n, m in product(range(1, 4), range(4)) if m <= n])
def test_parallel_calls_that_partly_returned_are_sent_together_and_closed(calls: int, results: int) -> None:
    run = Trajectory(system=SYSTEM, turns=(UserTurn(text="go"), step(0, calls, results)))
    packet = assemble(
        run.request(1, context=CONTEXT, window=1_000, max_output=10), ContextPolicy(), FixedCounter()
    )
    assert isinstance(packet, Packet)
    said = [message.content for message in packet.messages if message.role == "tool"]
    assert said == [f"out of c0-{n}" for n in range(results)] + [OPEN_CALL_TEXT] * (calls - results)
    assert len(packet.manifest.open_calls) == calls - results


def test_swapped_parallel_results_are_seen_in_one_packet() -> None:
    draft = Draft(
        tuple(
            DraftMessage.whole(message, "x", Region.TRAJECTORY)
            for message in (
                Message(role="assistant", content="", tool_calls=step(0, 2, 2).calls),
                Message(role="tool", content="b", tool_call_id="c0-1"),
                Message(role="tool", content="a", tool_call_id="c0-0"),
            )
        ),
        (),
    )
    assert broken_invariants(draft) == {Invariant.RESULTS_IN_CALL_ORDER}
    example = replace(draft, messages=tuple(replace(m, region=Region.EXAMPLES) for m in draft.messages))
    assert broken_invariants(example) == frozenset()
    whole = outcome()
    assert isinstance(whole, Packet)
    assert [m.tool_call_id for m in whole.messages[5:7]] == ["c1-0", "c1-1"]
    with pytest.raises(LabError, match="breaks results_in_call_order"):
        outcome(Edit(lambda messages: (*messages[:5], messages[6], messages[5], *messages[7:])))
