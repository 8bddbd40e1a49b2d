"""What each fault that shows a time or a number of the run does, and what it leaves alone."""

from __future__ import annotations

import pytest

from experiments.faults import FaultContext, build_faults
from serving.assembler import FRAMING, Message
from serving.errors import LabError, UsageError
from tests.support.sabotage import BEGIN, CALLS, sent

FOURTH = "Current time: 2026-01-02 12:00:00."
"""Call 4, nine hours a call."""


def messages(call: int, *names: str) -> tuple[Message, ...]:
    return sent(call, *names).packet.messages


def changed(call: int, name: str) -> list[int]:
    """Indices of messages that the fault changed, where it added none."""
    plain, faulty = messages(call), messages(call, name)
    assert len(plain) == len(faulty)
    return [index for index, (one, two) in enumerate(zip(plain, faulty, strict=True)) if one != two]


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("clock-in-system-head", 0),
        ("clock-in-system-tail", 0),
        ("clock-in-last-message", -1),
        ("clock-in-last-user-message", 10),
        ("date-in-system-head", 0),
        ("profile-in-first-message", 1),
        ("profile-counter-in-first-message", 1),
    ],
)
def test_one_message_is_changed_and_all_others_are_left_alone(name: str, place: int) -> None:
    index = place % len(messages(5))
    assert changed(5, name) == [index]
    before, after = messages(5)[index].content or "", messages(5, name)[index].content or ""
    assert before in after


def test_a_clock_stands_on_the_side_that_its_name_says() -> None:
    system, first = messages(4)[0].content, messages(4)[1].content
    assert messages(4, "clock-in-system-head")[0].content == f"{FOURTH}\n{system}"
    assert messages(4, "clock-in-system-tail")[0].content == f"{system}\n{FOURTH}"
    assert (messages(4, "clock-in-last-message")[-1].content or "").endswith(f"\n{FOURTH}")
    assert (
        messages(3, "clock-in-last-user-message")[1].content == f"{first}\nCurrent time: 2026-01-02 03:00:00."
    )
    assert messages(4, "date-in-system-head")[0].content == f"Today is 2026-01-02.\n{system}"


def test_the_clock_tool_is_called_before_every_message_of_the_model_and_old_answers_stay() -> None:
    said = [
        message.content
        for message in messages(4, "clock-by-tool")
        if (message.tool_call_id or "").startswith("clock-")
    ]
    assert len(said) == 5
    assert said[0] == "Current time: 2026-01-01 00:00:00."
    assert said[-1] == FOURTH
    own = [m for m in messages(4, "clock-by-tool") if m in messages(4)]
    assert tuple(own) == messages(4)


def test_the_refreshed_clock_has_one_answer_near_the_beginning() -> None:
    faulty = messages(4, "clock-result-refreshed")
    assert [m.role for m in faulty[:4]] == ["system", "user", "assistant", "tool"]
    assert faulty[3].content == FOURTH
    assert (*faulty[:2], *faulty[4:]) == messages(4)


@pytest.mark.parametrize("name", ["clock-by-tool", "clock-result-refreshed"])
def test_the_clock_tool_is_offered_once_at_the_end_and_belongs_to_no_item(name: str) -> None:
    packet = sent(4, name).packet
    assert packet.tools[:-1] == sent(4).packet.tools
    assert packet.tools[-1].name == "current_time"
    (owner,) = [span.item_id for span in packet.spans if span.path == ("tools", len(packet.tools) - 1)]
    assert owner == FRAMING


def test_both_faults_of_the_clock_tool_offer_it_once_and_call_it_under_different_ids() -> None:
    for names in (("clock-by-tool", "clock-result-refreshed"), ("clock-result-refreshed", "clock-by-tool")):
        packet = sent(4, *names).packet
        assert [tool.name for tool in packet.tools].count("current_time") == 1
        ids = [message.tool_call_id for message in packet.messages if message.tool_call_id]
        assert len(set(ids)) == len(ids)
        assert sum(call_id.startswith("clock-") for call_id in ids) == 6


def test_clock_by_tool_needs_the_times_of_all_calls_before() -> None:
    with pytest.raises(UsageError, match="the times of the 2 calls before this one, but 0 came"):
        build_faults(["clock-by-tool"], FaultContext(2, BEGIN, 0))


def test_clock_by_tool_refuses_a_history_that_is_longer_than_its_calls() -> None:
    (fault,) = build_faults(["clock-by-tool"], FaultContext(1, BEGIN, 0, times=(BEGIN,)))
    with pytest.raises(LabError, match="built for call 1, but the history holds 6 messages of the model"):
        fault.apply(sent(CALLS - 1).draft)


def test_the_profile_changes_every_third_call_and_its_counter_in_every_one() -> None:
    profiles = [messages(call, "profile-in-first-message")[1].content for call in range(CALLS)]
    assert [profiles.index(profile) for profile in profiles] == [0, 0, 0, 3, 3, 3, 6]
    counters = [messages(call, "profile-counter-in-first-message")[1].content for call in range(CALLS)]
    assert len(set(counters)) == CALLS
