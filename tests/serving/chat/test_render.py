from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.assembler.packet import Message, PacketSpan, ToolCall, ToolSpec
from serving.assembler.renderer import FRAMING, CoarseReason, Rendered
from serving.chat import ChatRenderer
from serving.errors import UsageError

Generator = Callable[[random.Random], tuple[list[dict[str, Any]], list[dict[str, Any]]]]

NAMES = ("qwen3", "qwen2_5", "smollm2")
MANY = settings(
    max_examples=700,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module", params=NAMES)
def renderer(request: pytest.FixtureRequest, tiny_folders: dict[str, Path]) -> ChatRenderer:
    return ChatRenderer(tiny_folders[request.param])


@pytest.fixture(scope="module")
def qwen3(tiny_folders: dict[str, Path]) -> ChatRenderer:
    return ChatRenderer(tiny_folders["qwen3"])


def whole_items(messages: list[Any], tools: list[Any]) -> list[PacketSpan]:
    spans = [PacketSpan(path=("messages", i), item_id=f"m{i}") for i in range(len(messages))]
    return spans + [PacketSpan(path=("tools", i), item_id=f"t{i}") for i in range(len(tools))]


def leaf_items(value: Any, path: tuple[str | int, ...] = ()) -> list[PacketSpan]:
    if isinstance(value, str):
        return [PacketSpan(path=path, item_id=json.dumps(path))] if "arguments" not in path[:-1] else []
    if isinstance(value, dict):
        return [span for key, part in value.items() for span in leaf_items(part, (*path, key))]
    if isinstance(value, list):
        return [span for i, part in enumerate(value) for span in leaf_items(part, (*path, i))]
    return []


def texts_of(rendered: Rendered, item: str) -> str:
    """The characters of an item's tokens (a token reaches to the next one's first byte)."""
    ends = [*rendered.token_offsets[1:], len(rendered.text)]
    return "".join(
        rendered.text[rendered.token_offsets[token] : ends[token]]
        for span in rendered.spans
        if span.item_id == item
        for token in range(span.start, span.end)
    )


def assert_partition(rendered: Rendered) -> None:
    position = 0
    for before, span in zip([None, *rendered.spans], rendered.spans, strict=False):
        assert span.start == position < span.end
        assert before is None or before.item_id != span.item_id
        position = span.end
    assert position == len(rendered.token_ids) == len(rendered.token_offsets)
    assert list(rendered.token_offsets) == sorted(rendered.token_offsets)


@given(seed=st.integers(0, 2**32))
@MANY
def test_every_token_belongs_to_one_item_or_framing_and_the_parts_sum(
    renderer: ChatRenderer, conversation: Generator, seed: int
) -> None:
    messages, tools = conversation(random.Random(seed))
    spans = whole_items(messages, tools) + leaf_items({"messages": messages, "tools": tools})
    rendered = renderer.render_body(messages, tools, spans)
    assert_partition(rendered)
    assert rendered.coarse is None
    assert rendered.text == renderer.render_body(messages, tools).text
    assert {span.item_id for span in rendered.spans} <= {FRAMING} | {span.item_id for span in spans}


@given(seed=st.integers(0, 2**32))
@settings(MANY, max_examples=150)
def test_origins_equal_those_found_with_markers_wherever_markers_leave_the_text_alone(
    qwen3: ChatRenderer, conversation: Generator, seed: int
) -> None:
    messages, tools = conversation(random.Random(seed))
    body = {"messages": messages, "tools": tools}
    rendered = qwen3.render_body(messages, tools)
    for span in leaf_items(body):
        if span.path[-1] not in ("content", "reasoning", "description"):
            continue
        marked = json.loads(json.dumps(body))
        place: Any = marked
        for part in span.path[:-1]:
            place = place[part]
        text = place[span.path[-1]]
        if not text:
            continue
        place[span.path[-1]] = f"\uf8f0{text}\uf8f1"
        other = qwen3.render_body(marked["messages"], marked["tools"]).text
        if other.replace("\uf8f0", "").replace("\uf8f1", "") != rendered.text:
            continue
        start, end = other.find("\uf8f0"), other.find("\uf8f1") - 1
        if other[start + 1 : end + 1] not in (text, json.dumps(text, ensure_ascii=False)[1:-1]):
            # Dropped, or taken apart (`</think>` inside content): two markers cannot say where it went.
            continue
        found = qwen3.render_body(messages, tools, [span])
        inside = [
            token
            for part in found.spans
            if part.item_id == span.item_id
            for token in range(part.start, part.end)
        ]
        expected = [t for t, offset in enumerate(found.token_offsets) if start <= offset < end]
        assert inside == expected


def test_a_packet_of_messages_renders_like_its_body(qwen3: ChatRenderer) -> None:
    tool = ToolSpec(name="f", description="does", parameters={"type": "object", "properties": {}})
    messages = [
        Message(role="user", content="go"),
        Message(
            role="assistant",
            content=None,
            reasoning="why",
            tool_calls=(ToolCall(id="c", name="f", arguments='{"b":1,  "a":"u"}'),),
        ),
        Message(role="tool", content="done", tool_call_id="c"),
    ]
    spans = [
        PacketSpan(path=("tools", 0), item_id="tool"),
        PacketSpan(path=("messages", 1, "tool_calls", 0), item_id="call"),
        PacketSpan(path=("messages", 1, "reasoning"), item_id="why"),
        PacketSpan(path=("messages", 2, "content"), item_id="result"),
    ]
    rendered = qwen3.render(messages, [tool], spans)
    assert "".join(token.piece for token in qwen3.show(rendered)) == rendered.text
    # A token that begins in the call and runs on into the template's own text is still the call's.
    assert texts_of(rendered, "call").startswith('f", "arguments": {"b": 1, "a": "u"}')
    assert texts_of(rendered, "why") == "why"
    assert texts_of(rendered, "result") == "done"
    assert json.loads(texts_of(rendered, "tool"))["function"]["name"] == "f"


def test_a_span_inside_a_string_takes_only_its_characters(qwen3: ChatRenderer) -> None:
    text = "A\n<agent_status>9</agent_status>"
    spans = [
        PacketSpan(path=("messages", 0), item_id="task"),
        PacketSpan(path=("messages", 0, "content"), start=2, item_id="status"),
    ]
    rendered = qwen3.render([Message(role="user", content=text)], [], spans)
    assert texts_of(rendered, "status") == text[2:]
    assert texts_of(rendered, "task") == "user\nA\n"


def test_a_carrier_wrapped_as_a_tool_response_keeps_the_templates_branch_and_its_spans(
    qwen3: ChatRenderer,
) -> None:
    messages = [
        Message(role="user", content="go"),
        Message(role="assistant", content="", reasoning="plan"),
        Message(role="user", content="<tool_response>\nbar\n</tool_response>"),
    ]
    spans = [
        PacketSpan(path=("messages", 1, "reasoning"), item_id="plan"),
        PacketSpan(path=("messages", 2, "content"), item_id="bar"),
    ]
    rendered = qwen3.render(messages, [], spans)
    assert texts_of(rendered, "plan") == "plan"
    assert texts_of(rendered, "bar") == messages[2].content


def test_reasoning_inside_content_keeps_its_origin_through_the_templates_splits(qwen3: ChatRenderer) -> None:
    messages = [
        Message(role="user", content="go"),
        Message(role="assistant", content="<think>\nwhy\n</think>\n\nso"),
    ]
    rendered = qwen3.render(messages, [], [PacketSpan(path=("messages", 1, "content"), item_id="a")])
    # The template takes the content apart and prints its own think tags around the pieces.
    assert "<think>\nwhy\n</think>\n\nso" in rendered.text
    assert texts_of(rendered, "a") == "why\n</think>\n\nso"


def test_a_merged_developer_message_keeps_its_own_item(qwen3: ChatRenderer) -> None:
    messages = [
        Message(role="system", content="S"),
        Message(role="user", content="U"),
        Message(role="developer", content="D"),
    ]
    spans = [PacketSpan(path=("messages", i, "content"), item_id=str(i)) for i in range(3)]
    rendered = qwen3.render(messages, [], spans)
    assert rendered.text.startswith("<|im_start|>system\nS\n\nD<|im_end|>")
    assert [texts_of(rendered, str(i)) for i in range(3)] == ["S", "U", "D"]


def test_an_unpaired_surrogate_is_refused_also_when_escaped_in_arguments(qwen3: ChatRenderer) -> None:
    with pytest.raises(UsageError, match=r"U\+D800 at character"):
        qwen3.render([Message(role="user", content="a\ud800")], [])
    call = ToolCall(id="c", name="f", arguments='{"a": "\\ud83d"}')
    with pytest.raises(UsageError, match=r"U\+D83D"):
        qwen3.render([Message(role="assistant", content="", tool_calls=(call,))], [])


@pytest.mark.parametrize(
    ("span", "message"),
    [
        (PacketSpan(path=("messages", 7), item_id="x"), "absent"),
        (PacketSpan(path=("messages", 0, "reasoning"), item_id="x"), "absent"),
        (PacketSpan(path=("messages", 0, "content"), start=0, end=99, item_id="x"), "of 2 characters"),
        (PacketSpan(path=("messages", 0), start=1, item_id="x"), "no string"),
    ],
)
def test_a_span_that_names_nothing_is_refused(qwen3: ChatRenderer, span: PacketSpan, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        qwen3.render([Message(role="user", content="hi")], [], [span])


def test_a_part_of_arguments_is_refused_since_the_server_writes_them_anew(qwen3: ChatRenderer) -> None:
    call = ToolCall(id="c", name="f", arguments='{"a": "b"}')
    span = PacketSpan(path=("messages", 0, "tool_calls", 0, "arguments"), start=2, end=4, item_id="x")
    with pytest.raises(UsageError, match="re-serialises"):
        qwen3.render([Message(role="assistant", content="", tool_calls=(call,))], [], [span])


@pytest.mark.parametrize(
    ("template", "coarse", "text"),
    [
        ("{{ messages[0].content | upper }}", None, "AB"),
        ("{{ messages[0].content ~ '!' }}", None, "ab"),
        ("{{ ['x', messages[0].content] | join('-') }}", None, "ab"),
        ("{{ '+'.join(messages[0].content.split('b')) }}", None, "a"),
        ("{{ messages[0].content | replace('b', 'c') }}", None, "a"),
        ("{% macro m(t) %}<{{ t }}>{% endmacro %}{{ m(messages[0].content) }}", None, "ab"),
        ("{% set x %}{{ messages[0].content }}{% endset %}{{ x }}", None, "ab"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}", None, "ab"),
        ("{{ messages[0].content | center(4) }}", CoarseReason.LEAF_BLURRED, " ab "),
        ("{{ '%s' % messages[0].content }}", None, "ab"),
        ("{{ '<%s>' % messages[0].content }}", CoarseReason.LEAF_BLURRED, "<ab>"),
        ("{{ [messages[0].content] }}", CoarseReason.LEAF_BLURRED, "['ab']"),
        ("{{ 'x' ~ [messages[0].content] }}", CoarseReason.LEAF_BLURRED, "['ab']"),
        ("{% for m in messages %}{% generation %}x{% endgeneration %}{% endfor %}", None, ""),
        ("{{ messages[0].get('none', 'x') }}", None, ""),
        ("{{ '{}{}'.format(messages[0].role, messages[0].content) }}", CoarseReason.ORIGIN_LOST, ""),
        ("{{ '%s%s' % (messages[0].role, messages[0].content) }}", CoarseReason.ORIGIN_LOST, ""),
    ],
)
def test_operations_keep_origins_or_say_that_they_do_not(
    tiny_folders: dict[str, Path], template: str, coarse: CoarseReason | None, text: str
) -> None:
    renderer = ChatRenderer(tiny_folders["qwen3"], template_override=template)
    span = PacketSpan(path=("messages", 0, "content"), item_id="x")
    rendered = renderer.render([Message(role="user", content="ab")], [], [span])
    assert rendered.coarse is coarse
    assert_partition(rendered)
    assert texts_of(rendered, "x") == text


def test_when_the_render_with_origins_differs_all_is_framing_and_the_reason_is_recorded(
    tiny_folders: dict[str, Path],
) -> None:
    # Identity of one-character strings is the one thing that a string with origins cannot imitate.
    source = "{% set c = messages[0].content %}{{ c }}{{ c[0] is sameas(c[0]) }}"
    renderer = ChatRenderer(tiny_folders["qwen3"], template_override=source)
    span = PacketSpan(path=("messages", 0, "content"), item_id="x")
    rendered = renderer.render([Message(role="user", content="ab")], [], [span])
    assert rendered.text == "abTrue"
    assert rendered.coarse is CoarseReason.RENDER_DIFFERS
    assert [part.item_id for part in rendered.spans] == [FRAMING]
    assert_partition(rendered)


def test_the_templates_own_text_between_messages_is_framing(qwen3: ChatRenderer) -> None:
    messages = [Message(role="system", content="S"), Message(role="user", content="U")]
    rendered = qwen3.render(messages, [], whole_items(messages, []))
    offsets = [*rendered.token_offsets, len(rendered.text)]
    pieces = [
        (span.item_id, rendered.text[offsets[span.start] : offsets[span.end]]) for span in rendered.spans
    ]
    assert pieces == [
        # This template writes "system" itself, and prints the role of a user message.
        (FRAMING, "<|im_start|>system\n"),
        ("m0", "S"),
        (FRAMING, "<|im_end|>\n<|im_start|>"),
        ("m1", "user\nU"),
        (FRAMING, "<|im_end|>\n<|im_start|>assistant\n"),
    ]


def test_a_blurred_string_that_no_span_names_is_no_reason_to_call_the_spans_coarse(
    tiny_folders: dict[str, Path],
) -> None:
    source = "{{ messages[0].role | center(9) }}{{ messages[0].content }}"
    renderer = ChatRenderer(tiny_folders["qwen3"], template_override=source)
    span = PacketSpan(path=("messages", 0, "content"), item_id="x")
    assert renderer.render([Message(role="user", content="ab")], [], [span]).coarse is None


def test_identity_changes_with_template_arguments_and_dialect_and_with_nothing_else(
    tiny_folders: dict[str, Path],
) -> None:
    folder = tiny_folders["qwen3"]
    base = ChatRenderer(folder).identity
    assert ChatRenderer(folder).identity == base
    assert ChatRenderer(tiny_folders["qwen2_5"]).identity.tokenizer_sha256 == base.tokenizer_sha256
    others = [
        ChatRenderer(folder, dialect="plain").identity,
        ChatRenderer(folder, template_kwargs={"enable_thinking": False}).identity,
        ChatRenderer(folder, template_override="{{ messages[0].content }}").identity,
    ]
    assert len({base.model_dump_json(), *(other.model_dump_json() for other in others)}) == 4


def test_a_template_that_refuses_speaks_in_its_own_words(tiny_folders: dict[str, Path]) -> None:
    renderer = ChatRenderer(
        tiny_folders["qwen3"], template_override="{{ raise_exception('roles must alternate') }}"
    )
    with pytest.raises(UsageError, match="roles must alternate"):
        renderer.render([Message(role="user", content="x")], [])
