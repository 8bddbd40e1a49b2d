"""Every token of a real template finds the segment that wrote it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import serving.assembler as ctx
from serving.attention import Reading, SegmentKind, read_body, read_packet, segments_from
from serving.chat import ChatRenderer
from serving.errors import UsageError
from tests.support.tiny_model import TEMPLATE_NAMES, write_tiny_folder

TENANT = ctx.Scope(tenant="acme")


@pytest.fixture(scope="module")
def renderers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ChatRenderer]:
    return {
        name: ChatRenderer(write_tiny_folder(tmp_path_factory.mktemp(name), name)) for name in TEMPLATE_NAMES
    }


def packet(renderer: ChatRenderer) -> ctx.Packet:
    spec = ctx.ToolSpec(name="read_file", description="Reads a file.", parameters={"type": "object"})
    step = ctx.ToolStep(
        calls=(
            ctx.ToolCall(id="call_1", name="read_file", arguments='{"path": "one.txt"}'),
            ctx.ToolCall(id="call_2", name="read_file", arguments='{"path": "two.txt"}'),
        ),
        results=(
            ctx.ToolResult(call_id="call_1", content="first content"),
            ctx.ToolResult(call_id="call_2", content="second content"),
        ),
        text="I read both.",
        reasoning="Both files matter here.",
    )
    request = ctx.AssemblyRequest(
        context=ctx.RequestContext(tenant="acme", actor="maria", now="2026-10-02T09:30:00Z"),
        candidates=(
            ctx.ContextItem(id="rule", payload=ctx.Instruction(text="Be brief.")),
            ctx.ContextItem(id="page", payload=ctx.Evidence(text="A fact."), scope=TENANT),
            ctx.ContextItem(id="bar", payload=ctx.StatusBar(text="calls used: 2 of 3")),
        ),
        tools=(ctx.ContextItem(id="read", payload=ctx.ToolContract(spec=spec)),),
        history=(
            ctx.ContextItem(id="turn-0", payload=ctx.UserTurn(text="Hello there.")),
            ctx.ContextItem(id="reply-0", payload=ctx.AssistantTurn(text="Welcome.")),
            ctx.ContextItem(id="turn-1", payload=ctx.UserTurn(text="Compare the files.")),
            ctx.ContextItem(id="step-1", payload=step),
        ),
        window=8192,
        max_output=64,
    )
    made = ctx.assemble(request, ctx.ContextPolicy(), renderer)
    assert isinstance(made, ctx.Packet)
    return made


def texts(reading: Reading, renderer: ChatRenderer) -> dict[str, str]:
    """What every segment's tokens say together."""
    pieces = [token.piece for token in renderer.tokenizer.show(reading.token_ids)]
    found = {segment.id: "" for segment in reading.segments.segments}
    for place, piece in zip(reading.segments.by_token, pieces, strict=True):
        found[reading.segments.segments[place].id] += piece
    return found


def kinds(reading: Reading) -> dict[str, SegmentKind]:
    return {segment.id: segment.kind for segment in reading.segments.segments}


def test_a_packet_is_divided_into_items_and_their_parts(renderers: dict[str, ChatRenderer]) -> None:
    renderer = renderers["qwen3"]
    made = packet(renderer)
    reading = read_packet(made, renderer)
    assert reading.token_ids == renderer.render(made.messages, made.tools).token_ids
    said = texts(reading, renderer)
    for owner, text in {
        "rule": "Be brief.",
        "read": "Reads a file.",
        "turn-0": "Hello there.",
        "reply-0": "Welcome.",
        "turn-1": "Compare the files.",
        "step-1": "I read both.",
        "step-1#thinking": "Both files matter here.",
        "step-1#call:call_1": "one.txt",
        "step-1#call:call_2": "two.txt",
        "step-1#call_1": "first content",
        "step-1#call_2": "second content",
        "page": "A fact.",
        "bar": "calls used: 2 of 3",
    }.items():
        assert text in said[owner], owner
        assert sum(text in other for other in said.values()) == 1, owner
    assert kinds(reading) == {
        "sink": SegmentKind.SINK,
        "framing": SegmentKind.FRAMING,
        "rule": SegmentKind.SYSTEM,
        "read": SegmentKind.TOOL,
        "turn-0": SegmentKind.USER,
        "reply-0": SegmentKind.ANSWER,
        "turn-1": SegmentKind.USER,
        "step-1": SegmentKind.ANSWER,
        "step-1#thinking": SegmentKind.THINKING,
        "step-1#call:call_1": SegmentKind.TOOL_CALL,
        "step-1#call:call_2": SegmentKind.TOOL_CALL,
        "step-1#call_1": SegmentKind.TOOL_RESULT,
        "step-1#call_2": SegmentKind.TOOL_RESULT,
        "page": SegmentKind.EVIDENCE,
        "bar": SegmentKind.STATUS_BAR,
    }
    by_id = {segment.id: segment for segment in reading.segments.segments}
    assert by_id["step-1#call_2"].label == "read_file result, turn 2"
    assert by_id["step-1#call_2"].item_id == "step-1"
    assert by_id["turn-0"].turn == 1
    assert reading.coarse is None


def test_the_items_tokens_are_those_of_the_manifest(renderers: dict[str, ChatRenderer]) -> None:
    renderer = renderers["qwen3"]
    made = packet(renderer)
    reading = read_packet(made, renderer)
    counted: dict[str | None, int] = {}
    for segment, size in zip(reading.segments.segments, reading.segments.sizes, strict=True):
        counted[segment.item_id] = counted.get(segment.item_id, 0) + int(size)
    assert {item.id: item.tokens for item in made.manifest.selected} == {
        item: size for item, size in counted.items() if item is not None
    }
    assert counted[None] == made.manifest.budget.framing


def test_what_the_model_wrote_follows_the_prompt(renderers: dict[str, ChatRenderer]) -> None:
    renderer = renderers["qwen3"]
    output = renderer.tokenizer.encode("<think>\nwell\n</think>\n\nfine<|im_end|>").ids
    reading = read_packet(packet(renderer), renderer, output)
    assert reading.segments.tokens == len(reading.token_ids)
    assert reading.token_ids[reading.segments.prompt_tokens :] == output
    said = texts(reading, renderer)
    assert said["output#thinking"] == "<think>\nwell\n</think>"
    assert said["output#answer"] == "\n\nfine"
    assert {segment.id for segment in reading.segments.segments if segment.generated} == {
        "output#thinking",
        "output#answer",
    }


def test_thinking_that_the_prompt_opened_goes_on(tmp_path: Path) -> None:
    folder = write_tiny_folder(tmp_path, "qwen3")
    template = (folder / "chat_template.jinja").read_text()
    renderer = ChatRenderer(folder, template_override=template + "{{ '<think>\n' }}")
    reading = read_body([{"role": "user", "content": "hi"}], [], renderer, [7, 8])
    assert reading.segments.segments[-1].id == "output#thinking"


def test_a_recorded_body_is_divided_by_message(renderers: dict[str, ChatRenderer]) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "What is there?"},
        {"role": "assistant", "content": "", "reasoning": "I look.", "tool_calls": [call]},
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": "a tree\n\n<agent_status>\n1 call</agent_status>",
        },
    ]
    tools: list[dict[str, Any]] = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    renderer = renderers["qwen3"]
    reading = read_body(messages, tools, renderer)
    said = texts(reading, renderer)
    assert "Be kind." in said["message-0"]
    assert "What is there?" in said["message-1"]
    assert said["message-2#thinking"] == "I look."
    assert "look" in said["message-2#call:c1"]
    assert said["message-3"].strip() == "a tree"
    assert said["message-3#status_bar"] == "<agent_status>\n1 call</agent_status>"
    labels = {segment.id: segment.label for segment in reading.segments.segments}
    assert labels["message-3"] == "look result, turn 1"
    assert labels["tool-0"] == "tool look"


TEXT = st.text("a <\n{}é日", max_size=8) | st.sampled_from(["<think>x</think>", "<tool_call>", "<|im_end|>"])


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = (
        [{"role": "system", "content": draw(TEXT)}] if draw(st.booleans()) else []
    )
    for turn in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": draw(TEXT)})
        reply: dict[str, Any] = {"role": "assistant", "content": draw(TEXT)}
        if draw(st.booleans()):
            reply["reasoning"] = draw(TEXT)
        messages.append(reply)
        count = draw(st.integers(0, 2))
        if count:
            names = [f"call_{turn}_{number}" for number in range(count)]
            function = {"name": "look", "arguments": json.dumps({"at": draw(TEXT)})}
            reply["tool_calls"] = [{"id": name, "type": "function", "function": function} for name in names]
            messages += [{"role": "tool", "tool_call_id": name, "content": draw(TEXT)} for name in names]
    return [*messages, {"role": "user", "content": draw(TEXT)}]


@pytest.mark.parametrize("name", TEMPLATE_NAMES)
@settings(max_examples=40)
@given(messages=conversations())
def test_any_conversation_is_divided_without_a_gap_and_reads_as_it_is_sent(
    name: str, renderers: dict[str, ChatRenderer], messages: list[dict[str, Any]]
) -> None:
    reading = read_body(messages, [], renderers[name])
    assert reading.token_ids == renderers[name].render_body(messages, []).token_ids
    assert reading.segments.tokens == len(reading.token_ids) == reading.segments.prompt_tokens


def test_two_meanings_of_one_owner_are_refused(renderers: dict[str, ChatRenderer]) -> None:
    """A call whose id is that of a part would be added to it in silence."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    twice = {**call, "function": {"name": "other", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "", "tool_calls": [call, twice]},
    ]
    with pytest.raises(UsageError, match="one meaning"):
        read_body(messages, [], renderers["qwen3"])


def test_an_owner_that_nobody_described_is_refused(renderers: dict[str, ChatRenderer]) -> None:
    made = packet(renderers["qwen3"])
    rendered = renderers["qwen3"].render(made.messages, made.tools, made.spans)
    with pytest.raises(UsageError, match="'rule'"):
        segments_from(rendered, {})
