from __future__ import annotations

import pytest

from serving.assembler import FRAMING, ContextItem, Instruction, Message, ToolCall, ToolSpec, item_of, part_id
from serving.assembler.messages import leaves


def test_a_message_on_the_wire_has_no_absent_field_and_keeps_the_empty_text() -> None:
    call = ToolCall(id="c", name="run", arguments='{"a":  1}')
    assert Message(role="assistant", content="", tool_calls=(call,)).to_api() == {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "run", "arguments": '{"a":  1}'}}
        ],
    }
    assert Message(role="tool", content="x", tool_call_id="c").to_api() == {
        "role": "tool",
        "content": "x",
        "tool_call_id": "c",
    }
    assert Message(role="assistant", content=None, reasoning="r").to_api() == {
        "role": "assistant",
        "content": None,
        "reasoning": "r",
    }


def test_a_tool_specification_cannot_be_edited_from_outside() -> None:
    parameters = {"properties": {"path": {"type": "string"}}}
    spec = ToolSpec(name="read", description="", parameters=parameters)
    parameters["properties"]["path"]["type"] = "number"
    sent = spec.to_api()
    sent["function"]["parameters"]["properties"]["path"]["type"] = "null"  # type: ignore[index,call-overload]
    assert spec.parameters == {"properties": {"path": {"type": "string"}}}


def test_leaves_are_named_by_the_path_that_spans_use() -> None:
    call = ToolCall(id="c", name="run", arguments="{}")
    spec = ToolSpec(name="run", description="d", parameters={"type": "object", "function": ["a"]})
    assert dict(leaves([Message(role="assistant", content="hi", tool_calls=(call,))], [spec])) == {
        ("messages", 0, "content"): "hi",
        ("messages", 0, "tool_calls", 0, "id"): "c",
        ("messages", 0, "tool_calls", 0, "name"): "run",
        ("messages", 0, "tool_calls", 0, "arguments"): "{}",
        ("tools", 0, "name"): "run",
        ("tools", 0, "description"): "d",
        ("tools", 0, "parameters", "type"): "object",
        ("tools", 0, "parameters", "function", 0): "a",
    }


@pytest.mark.parametrize("owner", ["step-3", FRAMING])
def test_the_part_of_an_item_leads_back_to_the_item(owner: str) -> None:
    assert item_of(part_id(owner, "call#1")) == item_of(owner) == owner


def test_an_item_read_from_json_gets_the_defaults_of_its_kind() -> None:
    text = '{"id": "a", "payload": {"kind": "instruction", "text": "be brief"}}'
    assert ContextItem.model_validate_json(text) == ContextItem(id="a", payload=Instruction(text="be brief"))
