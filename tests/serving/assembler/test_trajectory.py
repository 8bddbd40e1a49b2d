from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.assembler import (
    AssistantTurn,
    Carrier,
    ContextItem,
    ContextPolicy,
    FixedCounter,
    Message,
    Packet,
    RequestContext,
    StatusBar,
    ToolCall,
    ToolResult,
    ToolSpec,
    ToolStep,
    Turn,
    UserTurn,
    assemble,
    item_of,
    leaves,
    turns_from_messages,
)
from serving.assembler.layout import OPEN_CALL_TEXT
from serving.assembler.trajectory import Trajectory
from serving.errors import UsageError

CONTEXT = RequestContext(tenant="t1", actor="u1", now="2026-10-02T00:00:00Z")
TOOLS = (
    ToolSpec(
        name="read_file",
        description="Read a file.",
        parameters={"type": "object", "properties": {"path": {}}},
    ),
    ToolSpec(name="list_files", description="List files.", parameters={"type": "object", "properties": {}}),
)
ARGUMENTS = '{"path":  "a.txt", "é": 1}'


def step(number: int, width: int = 1, *, reasoning: str | None = "thinking") -> ToolStep:
    calls = tuple(
        ToolCall(id=f"call_{number}_{index}", name="read_file", arguments=ARGUMENTS) for index in range(width)
    )
    # Results are handed in backwards, as parallel calls may return.
    results = tuple(ToolResult(call_id=call.id, content=f"content of {call.id}") for call in reversed(calls))
    return ToolStep(calls=calls, results=results, text="", reasoning=reasoning)


@st.composite
def runs(draw: st.DrawFn) -> Trajectory:
    turns: list[Turn] = [UserTurn(text="Find the bug.")]
    for number in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["step", "parallel", "answer"]))
        if kind == "answer":
            turns += [AssistantTurn(text=f"answer {number}", reasoning="r"), UserTurn(text=f"next {number}")]
        else:
            turns.append(step(number, 1 if kind == "step" else draw(st.integers(2, 4))))
    if draw(st.booleans()):
        turns.append(AssistantTurn(text="done"))
    return Trajectory(system="You repair code.", tools=TOOLS, turns=tuple(turns))


def packet_of(run: Trajectory, call: int, policy: ContextPolicy | None = None, **more: object) -> Packet:
    extra = more.get("extra", ())
    assert isinstance(extra, tuple)
    request = run.request(call, context=CONTEXT, window=100_000, max_output=1_000, extra=extra)
    packet = assemble(request, policy or ContextPolicy(), FixedCounter(framing_per_message=4))
    assert isinstance(packet, Packet)
    return packet


@given(runs())
def test_every_call_extends_the_call_before_it(run: Trajectory) -> None:
    packets = [packet_of(run, call) for call in range(run.calls)]
    renderer = FixedCounter(framing_per_message=4)
    for before, after in pairwise(packets):
        assert len(after.messages) > len(before.messages)
        assert after.messages[: len(before.messages)] == before.messages
        assert after.tools == before.tools
        read_before = renderer.render(before.messages, before.tools, before.spans).token_ids
        read_after = renderer.render(after.messages, after.tools, after.spans).token_ids
        assert read_after[: len(read_before)] == read_before


@given(runs())
def test_every_leaf_of_every_packet_belongs_to_an_item(run: Trajectory) -> None:
    packet = packet_of(run, run.calls - 1)
    covered = {span.path for span in packet.spans}
    items = {item.id for item in packet.manifest.selected}
    for path, _ in leaves(packet.messages, packet.tools):
        assert any(path[:length] in covered for length in range(1, len(path) + 1)), path
    assert {item_of(span.item_id) for span in packet.spans} == items


@given(runs())
def test_tool_calls_are_closed_in_call_order_with_their_arguments_untouched(run: Trajectory) -> None:
    messages = packet_of(run, run.calls - 1).messages
    for index, message in enumerate(messages):
        ids = [call.id for call in message.tool_calls]
        answers = messages[index + 1 : index + 1 + len(ids)]
        assert [answer.tool_call_id for answer in answers] == ids
        assert all(call.arguments == ARGUMENTS for call in message.tool_calls)


@given(runs())
def test_a_log_of_messages_reads_back_as_the_turns_it_came_from(run: Trajectory) -> None:
    sent = packet_of(run, run.calls - 1).messages[1:]
    again = Trajectory(system=run.system, tools=run.tools, turns=turns_from_messages(sent))
    assert packet_of(again, again.calls - 1).messages[1:] == sent


def test_the_calls_of_a_run_are_the_turns_that_the_model_wrote() -> None:
    run = Trajectory(
        turns=(UserTurn(text="a"), step(0), step(1), AssistantTurn(text="b"), UserTurn(text="c"))
    )
    assert run.calls == 4
    assert [len(run.history(call)) for call in range(run.calls)] == [1, 2, 3, 5]
    with pytest.raises(UsageError, match="calls 0 to 3, but call 4"):
        run.history(4)


@pytest.mark.parametrize("carrier", list(Carrier))
def test_a_status_bar_rides_at_the_end_and_leaves_the_trajectory_before_it_alone(carrier: Carrier) -> None:
    run = Trajectory(system="s", tools=TOOLS, turns=(UserTurn(text="go"), step(0, 2)))
    bar = ContextItem(id="bar", payload=StatusBar(text="calls: 2/3"))
    bare, barred = packet_of(run, 1), packet_of(run, 1, ContextPolicy(carrier=carrier), extra=(bar,))
    shown = "<agent_status>\ncalls: 2/3\n</agent_status>"
    last = barred.messages[-1]
    assert last.content is not None
    assert shown in last.content
    match carrier:
        case Carrier.USER:
            assert barred.messages == (*bare.messages, Message(role="user", content=shown))
        case Carrier.TAIL_OF_LAST_TOOL_RESULT:
            assert barred.messages[:-1] == bare.messages[:-1]
            assert last.role == "tool"
            assert last.content == f"{bare.messages[-1].content}\n\n{shown}"
        case Carrier.TOOL_RESPONSE:
            assert barred.messages[:-1] == bare.messages
            assert last == Message(role="user", content=f"<tool_response>\n{shown}\n</tool_response>")
    here = ("messages", len(barred.messages) - 1, "content")
    ranges = [(span.start, span.end) for span in barred.spans if span.path == here]
    if carrier is Carrier.TAIL_OF_LAST_TOOL_RESULT:
        length = len(bare.messages[-1].content or "")
        assert ranges == [(0, length), (length + 2, len(last.content))]
    (span,) = [span for span in barred.spans if span.item_id == "bar"]
    assert last.content[span.start : span.end] == shown


@pytest.mark.parametrize("carrier", list(Carrier))
def test_a_status_bar_in_the_history_stays_where_it_was_sent(carrier: Carrier) -> None:
    policy = ContextPolicy(carrier=carrier)
    run = Trajectory(turns=(UserTurn(text="go"), step(0), step(1)))
    first, second = run.history(1), run.history(2)
    bars = [ContextItem(id=f"bar-{index}", payload=StatusBar(text=f"{index} calls")) for index in range(2)]
    logs = [(*first, bars[0]), (*first, bars[0], *second[len(first) :], bars[1])]
    requests = [
        run.request(0, context=CONTEXT, window=9_000, max_output=10).model_copy(update={"history": log})
        for log in logs
    ]
    before, after = (assemble(request, policy, FixedCounter()) for request in requests)
    assert isinstance(before, Packet)
    assert isinstance(after, Packet)
    assert after.messages[: len(before.messages)] == before.messages


def test_a_call_that_has_not_returned_is_kept_and_closed_by_a_fixed_sentence() -> None:
    calls = tuple(ToolCall(id=f"c{index}", name="read_file", arguments="{}") for index in range(2))
    half = ToolStep(calls=calls, results=(ToolResult(call_id="c1", content="found"),))
    packet = packet_of(Trajectory(turns=(UserTurn(text="go"), half)), 1)
    assert [(message.tool_call_id, message.content) for message in packet.messages[2:]] == [
        ("c0", OPEN_CALL_TEXT),
        ("c1", "found"),
    ]
    assert [(call.item_id, call.call_id) for call in packet.manifest.open_calls] == [("turn-001", "c0")]


def test_a_log_with_an_orphan_result_at_its_head_is_refused() -> None:
    log = [Message(role="tool", content="42", tool_call_id="lost"), Message(role="user", content="hi")]
    with pytest.raises(UsageError, match="message 0 is a tool result without its call"):
        turns_from_messages(log)


def test_a_log_that_kept_one_of_two_parallel_results_is_refused() -> None:
    calls = tuple(ToolCall(id=name, name="read_file", arguments="{}") for name in ("a", "b"))
    log = [
        Message(role="assistant", content="", tool_calls=calls),
        Message(role="tool", content="1", tool_call_id="a"),
        Message(role="user", content="and?"),
    ]
    with pytest.raises(UsageError, match="b has no result"):
        turns_from_messages(log)


def test_a_result_that_answers_another_call_is_refused() -> None:
    call = ToolCall(id="a", name="read_file", arguments="{}")
    with pytest.raises(UsageError, match="other was never called"):
        ToolStep(calls=(call,), results=(ToolResult(call_id="other", content="x"),))
