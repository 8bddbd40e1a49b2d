"""What each fault does to the history: windows, transcripts, results, arguments, reasoning, replacements."""

from __future__ import annotations

import json

import pytest

from experiments.faults import FaultContext, build_faults
from experiments.workloads import file_tour
from serving.assembler import (
    ContextItem,
    ContextPolicy,
    FixedCounter,
    Packet,
    RequestContext,
    StatusBar,
    assemble,
)
from tests.support.sabotage import BEGIN, CALLS, RUN, sent


@pytest.mark.parametrize(("name", "most"), [("sliding-window", 6), ("sliding-window-10", 10)])
def test_a_sliding_window_keeps_the_head_the_last_messages_and_no_orphan(name: str, most: int) -> None:
    tour = file_tour()
    for call in range(tour.calls):
        faulty, plain = sent(call, name, run=tour).packet, sent(call, run=tour).packet
        kept = len(faulty.messages) - 1
        assert kept <= most
        assert faulty.messages[0] == plain.messages[0]
        assert faulty.messages[1].role != "tool"
        assert faulty.messages[1:] == plain.messages[-kept:]
    assert kept > most - 3


@pytest.mark.parametrize("name", ["text-transcript", "text-transcript-moving-head"])
def test_a_transcript_holds_every_word_in_one_user_message(name: str) -> None:
    faulty, plain = sent(6, name).packet, sent(6).packet
    assert [message.role for message in faulty.messages] == ["system", "user"]
    text = faulty.messages[1].content or ""
    for message in plain.messages[1:]:
        assert f"{message.role}: {message.content or ''}" in text
        for call in message.tool_calls:
            assert f"[{call.name} {call.arguments}]" in text


def test_only_the_stable_transcript_of_the_next_call_extends_this_one() -> None:
    for name, extends in (("text-transcript", True), ("text-transcript-moving-head", False)):
        one, two = (sent(call, name).packet.messages[1].content or "" for call in (4, 5))
        assert two.startswith(one) is extends


def test_tool_results_become_words_of_the_user_and_calls_stay() -> None:
    faulty, plain = sent(6, "tool-result-as-user").packet, sent(6).packet
    assert [m.content for m in faulty.messages] == [m.content for m in plain.messages]
    assert [m.tool_calls for m in faulty.messages] == [m.tool_calls for m in plain.messages]
    assert "tool" not in [m.role for m in faulty.messages]
    assert all(m.tool_call_id is None for m in faulty.messages)


def test_the_late_system_message_is_the_last_and_the_only_one_that_is_new() -> None:
    faulty, plain = sent(4, "late-system-message").packet, sent(4).packet
    assert faulty.messages[:-1] == plain.messages
    assert faulty.messages[-1].role == "system"


def test_results_of_parallel_calls_are_swapped_and_single_ones_stay() -> None:
    faulty, plain = sent(4, "parallel-results-swapped").packet, sent(4).packet
    ids = [m.tool_call_id for m in faulty.messages if m.tool_call_id]
    assert [m.tool_call_id for m in plain.messages if m.tool_call_id] == ["c00", "c10", "c11", "c20"]
    assert ids == ["c00", "c11", "c10", "c20"]
    contents = {m.tool_call_id: m.content for m in plain.messages if m.tool_call_id}
    assert all(contents[m.tool_call_id] == m.content for m in faulty.messages if m.tool_call_id)


def test_arguments_keep_their_values_and_lose_their_bytes() -> None:
    orders = set()
    for seed in range(8):
        faulty, plain = sent(4, "arguments-reserialised", seed=seed).packet, sent(4).packet
        for one, two in zip(faulty.messages, plain.messages, strict=True):
            for again, first in zip(one.tool_calls, two.tool_calls, strict=True):
                assert again.arguments != first.arguments
                assert json.loads(again.arguments) == json.loads(first.arguments)
                orders.add((first.id, tuple(json.loads(again.arguments))))
            assert one.content == two.content
    assert {order for call, order in orders if call == "c10"} == {("pattern", "path"), ("path", "pattern")}


def test_arguments_that_are_no_object_stay_as_they_are() -> None:
    turns = list(RUN.turns[:2])
    for broken in ("{'a': 1}", "[1, 2]", "", '{"a": '):
        call = turns[1].calls[0].model_copy(update={"arguments": broken})
        run = RUN.model_copy(update={"turns": (turns[0], turns[1].model_copy(update={"calls": (call,)}))})
        assert sent(1, "arguments-reserialised", run=run).packet.messages == sent(1, run=run).packet.messages


def test_dropped_reasoning_takes_nothing_else_with_it() -> None:
    faulty, plain = sent(6, "reasoning-dropped").packet, sent(6).packet
    assert any(message.reasoning for message in plain.messages)
    assert faulty.messages == tuple(m.model_copy(update={"reasoning": None}) for m in plain.messages)


def test_echoed_reasoning_stands_as_text_in_front_of_the_answer() -> None:
    faulty = sent(6, "reasoning-echoed").packet
    thoughts = [m.content or "" for m in faulty.messages if "<think>" in (m.content or "")]
    assert len(thoughts) == 6
    assert thoughts[0] == "<think>\nThought 0: look further.\n</think>\n\nI read the overview."
    assert thoughts[1] == "<think>\nThought 1: look further.\n</think>\n"
    assert all(m.reasoning == "" for m in faulty.messages if m.role == "assistant")


def test_every_result_but_those_of_the_last_step_is_replaced_by_a_text_that_names_the_request() -> None:
    for call in (3, 5):
        contents = [
            m.content or "" for m in sent(call, "replacements-rotated").packet.messages if m.role == "tool"
        ]
        last = 1
        assert all(text.endswith(f"as of request {call}]") for text in contents[:-last])
        assert contents[-last] == [m.content for m in sent(call).packet.messages if m.role == "tool"][-last]


def test_with_a_plan_the_masked_results_alone_are_replaced_and_a_status_bar_behind_one_stays() -> None:
    context = RequestContext(tenant="t", actor="a", now=BEGIN)
    bar = ContextItem(id="bar", payload=StatusBar(text="calls: 5"))
    request = RUN.request(CALLS - 1, context=context, window=100_000, max_output=1, extra=(bar,))
    masked = frozenset({"turn-002#c11", "turn-007#c50"})
    faults = build_faults(["replacements-rotated"], FaultContext(CALLS - 1, BEGIN, 0, masked=masked))
    faulty = assemble(request, ContextPolicy(), FixedCounter(), faults)
    plain = assemble(request, ContextPolicy(), FixedCounter())
    assert isinstance(faulty, Packet) and isinstance(plain, Packet)
    differ = [
        two.tool_call_id for one, two in zip(plain.messages, faulty.messages, strict=True) if one != two
    ]
    assert differ == ["c11", "c50"]
    content = faulty.messages[-1].content or ""
    assert content.startswith("[result left out to save room, as of request 6]")
    (span,) = [s for s in faulty.spans if s.item_id == "bar"]
    assert content[span.start : span.end] == "<agent_status>\ncalls: 5\n</agent_status>"


def test_faults_keep_a_suffix_that_stands_before_the_task_where_it_is() -> None:
    context = RequestContext(tenant="t", actor="a", now=BEGIN)
    bar = ContextItem(id="bar", payload=StatusBar(text="calls: 4"))
    request = RUN.request(4, context=context, window=100_000, max_output=1, extra=(bar,))
    for name in ("sliding-window", "late-system-message", "replacements-rotated"):
        faults = build_faults([name], FaultContext(4, BEGIN, 0))
        faulty = assemble(request, ContextPolicy(suffix_position="before_task"), FixedCounter(), faults)
        assert isinstance(faulty, Packet)
        contents = [message.content or "" for message in faulty.messages]
        places = [index for index, text in enumerate(contents) if "agent_status" in text]
        assert contents[places[0] + 1] == "And could an invoice be sent twice?"
