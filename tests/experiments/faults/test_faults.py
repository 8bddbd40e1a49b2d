from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from experiments.faults import FAULTS, FaultContext, build_faults
from experiments.workloads import file_tour
from serving.assembler import (
    ContextPolicy,
    FixedCounter,
    HandOff,
    Message,
    Packet,
    RequestContext,
    assemble,
    leaves,
)
from serving.errors import UsageError

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def packet(call: int, *names: str, seed: int = 0) -> Packet:
    now = BEGIN + timedelta(minutes=call)
    context = RequestContext(tenant="t", actor="a", now=now)
    request = file_tour().request(call, context=context, window=100_000, max_output=1)
    sizes = dict.fromkeys((item.id for item in (*request.candidates, *request.history, *request.tools)), 10)
    built = assemble(
        request, ContextPolicy(), FixedCounter(sizes), build_faults(names, FaultContext(call, now, seed))
    )
    assert not isinstance(built, HandOff)
    return built


def common(one: tuple[Message, ...], two: tuple[Message, ...]) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two))
    )


def test_without_a_fault_each_call_extends_the_one_before() -> None:
    for call in range(15):
        before, after = packet(call), packet(call + 1)
        assert after.messages[: len(before.messages)] == before.messages
        assert after.tools == before.tools


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_listed_in_the_manifest_with_what_it_breaks(name: str) -> None:
    (record,) = packet(5, name).manifest.faults
    assert record.name == name
    assert record.breaks


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_changes_the_packet_and_gives_the_same_bytes_again(name: str) -> None:
    faulty = packet(9, name)
    assert faulty.manifest.packet_sha256 != packet(9).manifest.packet_sha256
    assert faulty == packet(9, name)


@pytest.mark.parametrize("name", FAULTS)
def test_every_span_of_a_faulty_packet_lies_inside_its_leaf(name: str) -> None:
    faulty = packet(9, name)
    texts = dict(leaves(faulty.messages, faulty.tools))
    for span in faulty.spans:
        if span.path in texts and span.end is not None:
            assert 0 <= span.start <= span.end <= len(texts[span.path])


def test_the_clock_in_the_system_prompt_moves_the_item_behind_it() -> None:
    faulty, plain = packet(4, "clock-in-system-head"), packet(4)
    span = next(span for span in faulty.spans if span.path == ("messages", 0, "content"))
    content = faulty.messages[0].content or ""
    assert content.startswith("Current time: 2026-01-01 00:04:00.\n")
    assert content[span.start : span.end] == plain.messages[0].content
    assert faulty.messages[1:] == plain.messages[1:]


def test_the_clock_in_the_last_message_leaves_all_others_alone() -> None:
    faulty, plain = packet(4, "clock-in-last-message"), packet(4)
    assert faulty.messages[:-1] == plain.messages[:-1]
    assert (faulty.messages[-1].content or "").endswith("Current time: 2026-01-01 00:04:00.")


def test_shuffled_tools_are_the_same_tools_in_an_order_that_depends_on_the_call() -> None:
    orders = [tuple(tool.name for tool in packet(call, "tools-shuffled").tools) for call in range(6)]
    assert {tuple(sorted(order)) for order in orders} == {tuple(sorted(orders[0]))}
    assert len(set(orders)) > 3


def test_the_sliding_window_keeps_the_head_the_last_messages_and_no_orphan() -> None:
    faulty, plain = packet(12, "sliding-window"), packet(12)
    assert faulty.messages[0] == plain.messages[0]
    assert len(faulty.messages) <= 7
    assert faulty.messages[1].role != "tool"
    kept = len(faulty.messages) - 1
    assert faulty.messages[1:] == plain.messages[-kept:]


def test_the_text_transcript_holds_every_word_in_one_user_message() -> None:
    faulty, plain = packet(6, "text-transcript"), packet(6)
    assert [message.role for message in faulty.messages] == ["system", "user"]
    text = faulty.messages[1].content or ""
    for message in plain.messages[1:]:
        assert (message.content or "") in text
        for call in message.tool_calls:
            assert call.arguments in text


def test_the_text_transcript_of_the_next_call_extends_this_one() -> None:
    one, two = packet(6, "text-transcript"), packet(7, "text-transcript")
    assert (two.messages[1].content or "").startswith(one.messages[1].content or "")


def test_breaking_faults_leave_the_prefix_where_they_say() -> None:
    head = packet(4, "clock-in-system-head").messages, packet(5, "clock-in-system-head").messages
    assert common(*head) == 0
    last = packet(4, "clock-in-last-message").messages, packet(5, "clock-in-last-message").messages
    assert common(*last) == len(last[0]) - 1


def test_an_unknown_fault_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="no fault 'sunspots'"):
        build_faults(["sunspots"], FaultContext(0, BEGIN, 0))
