from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.attention.recorded import read_exchange
from experiments.attention.sources import messages_file, recorded_call
from experiments.framework.local_model import recorded
from experiments.workloads import PhoneBar, phone_bar, phone_limit
from serving.assembler import ContextPolicy, Packet, assemble
from serving.attention import read_body, read_packet
from serving.chat import ChatRenderer
from serving.client import Exchange
from serving.errors import UsageError
from tests.support.tiny_model import write_tiny_folder

REFERENCE = Path(__file__).parents[3] / "results" / "prefix-cache" / "qwen2.5-coder-0.5b-times"


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> ChatRenderer:
    return ChatRenderer(write_tiny_folder(tmp_path_factory.mktemp("tiny"), "qwen2_5"))


def packet_of(renderer: ChatRenderer, seed: int = 1) -> Packet:
    """An agent's context with a status bar in its last message."""
    scenario = phone_limit(seed, calls=2, other_steps=2)
    bar = phone_bar(scenario, PhoneBar.COUNT_AND_VERDICT, len)
    assert bar is not None
    packet = assemble(scenario.request(window=8192, max_output=16, extra=(bar,)), ContextPolicy(), renderer)
    assert isinstance(packet, Packet)
    return packet


def exchange_of(packet: Packet, renderer: ChatRenderer) -> Exchange:
    prompt = read_packet(packet, renderer).token_ids
    return recorded(packet, prompt, lambda: (5, 6, 7), lambda ids: "…")


def test_a_recorded_call_gets_the_segments_that_its_packet_had(renderer: ChatRenderer) -> None:
    packet = packet_of(renderer)
    found = read_exchange(exchange_of(packet, renderer), renderer, packet.manifest)
    assert found.note is None
    known = read_packet(packet, renderer, (5, 6, 7))
    assert found.reading.token_ids == known.token_ids
    assert [segment.id for segment in found.reading.segments.segments] == [
        segment.id for segment in known.segments.segments
    ]
    assert found.reading.segments.runs == known.segments.runs
    assert [segment.kind for segment in found.reading.segments.segments] == [
        segment.kind for segment in known.segments.segments
    ]


def test_without_a_manifest_messages_stay_whole_and_it_is_said(renderer: ChatRenderer) -> None:
    packet = packet_of(renderer)
    found = read_exchange(exchange_of(packet, renderer), renderer, None)
    assert found.note == "segments are whole messages: the record has no manifest"
    assert found.reading.segments.of_kind() == ()
    assert "message-0" in {segment.id for segment in found.reading.segments.segments}


def changed(exchange: Exchange, renderer: ChatRenderer, place: int, before: str) -> Exchange:
    """The exchange with a text before one of its messages."""
    messages = json.loads(json.dumps(exchange.request["messages"]))
    messages[place]["content"] = before + messages[place]["content"]
    body = {**exchange.request, "messages": messages}
    ids = read_body(messages, exchange.request["tools"], renderer).token_ids  # type: ignore[arg-type]
    return exchange.model_copy(update={"request": body, "prompt_token_ids": ids})


def test_a_clock_in_the_system_message_makes_it_one_segment_and_leaves_the_rest(
    renderer: ChatRenderer,
) -> None:
    packet = packet_of(renderer)
    exchange = changed(exchange_of(packet, renderer), renderer, 0, "It is 09:00. ")
    found = read_exchange(exchange, renderer, packet.manifest)
    assert found.note is not None
    assert "the system message is one segment" in found.note
    known = read_packet(packet, renderer, (5, 6, 7))
    assert {segment.id for segment in found.reading.segments.segments} == {
        segment.id for segment in known.segments.segments
    }


def test_a_changed_turn_leaves_all_messages_whole_and_is_named(renderer: ChatRenderer) -> None:
    packet = packet_of(renderer)
    exchange = changed(exchange_of(packet, renderer), renderer, 1, "It is 09:00. ")
    found = read_exchange(exchange, renderer, packet.manifest)
    assert found.note is not None
    assert "message 1" in found.note
    ids = {segment.id for segment in found.reading.segments.segments}
    assert "message-0" in ids
    assert "tool:call_phone" in ids, "contracts are told by their names"


def test_items_of_another_order_are_not_believed(renderer: ChatRenderer) -> None:
    packet = packet_of(renderer)
    selected = packet.manifest.selected
    order = (*selected[:-3], selected[-2], selected[-3], selected[-1])
    turned = packet.manifest.model_copy(update={"selected": order})
    found = read_exchange(exchange_of(packet, renderer), renderer, turned)
    assert found.note is not None
    assert "does not fit" in found.note


def test_a_record_of_another_template_is_refused(renderer: ChatRenderer) -> None:
    exchange = exchange_of(packet_of(renderer), renderer)
    ids = exchange.prompt_token_ids
    assert ids is not None
    with pytest.raises(UsageError, match="they differ"):
        read_exchange(exchange.model_copy(update={"prompt_token_ids": ids[1:]}), renderer, None)


def test_a_call_of_a_run_folder_is_found_by_its_place() -> None:
    call = recorded_call(f"{REFERENCE}:2.5")
    assert call.name == "append-only, call 5"
    assert recorded_call(f"{REFERENCE}:2").exchange == recorded_call(f"{REFERENCE}:2.5").exchange
    with pytest.raises(UsageError, match="a call below 6 of record 2"):
        recorded_call(f"{REFERENCE}:2.6")
    with pytest.raises(UsageError, match="a record below 100"):
        recorded_call(f"{REFERENCE}:100")
    with pytest.raises(UsageError, match="not a run folder"):
        recorded_call(str(REFERENCE.parent))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "Expected JSON"),
        ("3", "a list of messages or a chat body"),
        ("[]", "at least one message"),
        ("[3]", "a list of objects"),
        ('[{"content": "x"}]', "a role in every message"),
        ('{"messages": [{"role": "user"}], "tools": 3}', "'tools'"),
    ],
)
def test_a_file_that_holds_no_messages_is_refused_in_one_sentence(
    tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "chat.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=problem) as error:
        messages_file(file)
    assert "\n" not in str(error.value)


def test_a_chat_body_and_a_bare_list_are_both_messages(tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    messages = [{"role": "user", "content": "Hello"}]
    for body in (messages, {"messages": messages, "model": "x"}):
        file.write_text(json.dumps(body), encoding="utf-8")
        assert messages_file(file).messages == messages
