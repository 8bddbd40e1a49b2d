from __future__ import annotations

import pytest

from serving.assembler import (
    AssemblyRequest,
    ContextPolicy,
    FixedCounter,
    Message,
    Packet,
    Rendered,
    RequestContext,
    TokenSpan,
    ToolCall,
    ToolSpec,
    assemble,
)
from serving.assembler.first_difference import first_byte_that_differs, first_token_that_differs
from serving.assembler.messages import MessagePath

MANIFEST = assemble(
    AssemblyRequest(
        context=RequestContext(tenant="t1", actor="u1", now="2026-10-02"), window=9, max_output=1
    ),
    ContextPolicy(),
    FixedCounter(),
).manifest
CALL = ToolCall(id="c1", name="look", arguments='{"a": 1}')
CALLING = Message(role="assistant", content="hm", reasoning="think", tool_calls=(CALL,))
RESULT = Message(role="tool", content="found", tool_call_id="c1")
TOOL = ToolSpec(name="look", description="look", parameters={"a": 1, "b": 2})


def packet(*messages: Message, tools: tuple[ToolSpec, ...] = (TOOL,)) -> Packet:
    return Packet(messages=messages, tools=tools, spans=(), manifest=MANIFEST)


def with_call(**fields: str) -> Message:
    return CALLING.model_copy(update={"tool_calls": (CALL.model_copy(update=fields),)})


BASE = packet(CALLING, RESULT)

CASES: list[tuple[str, Packet, MessagePath, int]] = [
    (
        "schema",
        packet(CALLING, RESULT, tools=(TOOL.model_copy(update={"parameters": {"a": 1, "b": 3}}),)),
        ("tools", 0, "parameters"),
        14,
    ),
    (
        "order of keys",
        packet(CALLING, RESULT, tools=(TOOL.model_copy(update={"parameters": {"b": 2, "a": 1}}),)),
        ("tools", 0, "parameters"),
        2,
    ),
    ("no tools", packet(CALLING, RESULT, tools=()), ("tools", 0, "name"), 0),
    (
        "reasoning",
        packet(CALLING.model_copy(update={"reasoning": "thank"}), RESULT),
        ("messages", 0, "reasoning"),
        2,
    ),
    (
        "reasoning dropped",
        packet(CALLING.model_copy(update={"reasoning": None}), RESULT),
        ("messages", 0, "reasoning"),
        0,
    ),
    (
        "arguments",
        packet(with_call(arguments='{"a":1}'), RESULT),
        ("messages", 0, "tool_calls", 0, "arguments"),
        5,
    ),
    ("name", packet(with_call(name="seek"), RESULT), ("messages", 0, "tool_calls", 0, "name"), 0),
    (
        "call dropped",
        packet(CALLING.model_copy(update={"tool_calls": ()}), RESULT),
        ("messages", 0, "tool_calls", 0, "id"),
        0,
    ),
    (
        "result of another call",
        packet(CALLING, RESULT.model_copy(update={"tool_call_id": "c2"})),
        ("messages", 1, "tool_call_id"),
        1,
    ),
    ("role", packet(CALLING, RESULT.model_copy(update={"role": "user"})), ("messages", 1, "role"), 0),
    (
        "longer",
        packet(CALLING, RESULT.model_copy(update={"content": "found it"})),
        ("messages", 1, "content"),
        5,
    ),
]


@pytest.mark.parametrize(("other", "path", "byte"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_the_first_byte_is_found_wherever_it_is_and_from_either_side(
    other: Packet, path: MessagePath, byte: int
) -> None:
    forth, back = first_byte_that_differs(BASE, other), first_byte_that_differs(other, BASE)
    assert forth is not None and back is not None
    assert (forth.path, forth.byte) == (back.path, back.byte) == (path, byte)
    assert back == forth.swapped()


def test_equal_packets_have_no_first_byte_that_differs() -> None:
    assert first_byte_that_differs(BASE, packet(CALLING, RESULT)) is None


def test_a_prompt_that_extends_another_differs_at_the_others_end() -> None:
    short = Rendered((1, 2), "", (TokenSpan(0, 2, "a"),))
    long = Rendered((1, 2, 3), "", (TokenSpan(0, 2, "a"), TokenSpan(2, 3, "b#part")))
    first = first_token_that_differs(short, long)
    assert first is not None
    assert (first.token, first.before_item, first.after_item) == (2, None, "b")
    assert first.swapped() == first_token_that_differs(long, short)
    assert str(first) == "first token that differs: 2 of 2 → 3 (end → b)"
    assert first_token_that_differs(short, short) is None
