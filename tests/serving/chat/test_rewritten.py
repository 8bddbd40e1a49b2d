from __future__ import annotations

from pathlib import Path

import pytest

from serving.assembler.packet import Message, PacketSpan, ToolCall, ToolSpec
from serving.assembler.reuse import RewriteKind, Rewritten
from serving.chat import ChatRenderer

TOOL = ToolSpec(name="look", description="looks", parameters={"type": "object", "properties": {}})


def user(text: str) -> Message:
    return Message(role="user", content=text)


def answer(text: str, reasoning: str | None = None) -> Message:
    return Message(role="assistant", content=text, reasoning=reasoning)


def call(number: int, reasoning: str | None = None, calls: int = 1) -> list[Message]:
    ids = [f"c{number}.{index}" for index in range(calls)]
    asked = tuple(ToolCall(id=call_id, name="look", arguments="{}") for call_id in ids)
    results = [Message(role="tool", content=f"seen {call_id}", tool_call_id=call_id) for call_id in ids]
    return [Message(role="assistant", content="", reasoning=reasoning, tool_calls=asked), *results]


def rewritten(
    renderer: ChatRenderer, *conversations: list[Message], tools: tuple[ToolSpec, ...] = ()
) -> tuple[Rewritten, ...]:
    """What the last of the conversations, rendered in order, reports."""
    for messages in conversations:
        spans = [PacketSpan(path=("messages", index), item_id=f"m{index}") for index in range(len(messages))]
        last = renderer.render(messages, tools, spans)
    assert last.reuse is not None
    return last.reuse.rewritten


@pytest.fixture(scope="module")
def folder(tiny_folders: dict[str, Path]) -> Path:
    return tiny_folders["qwen3"]


def test_a_conversation_that_only_grows_has_no_message_rewritten(tiny_folders: dict[str, Path]) -> None:
    for name in tiny_folders:
        renderer = ChatRenderer(tiny_folders[name])
        first = [user("a"), answer("b"), user("c")]
        assert rewritten(renderer, first, [*first, answer("d"), user("e")]) == ()


def test_reasoning_that_a_new_user_message_takes_away_is_named_with_its_message(folder: Path) -> None:
    loop = [user("go"), *call(0, reasoning="first why"), *call(1, reasoning="second why")]
    found = rewritten(ChatRenderer(folder), loop, [*loop, answer("done"), user("thanks")])
    assert found == (Rewritten(1, RewriteKind.SHORTENED), Rewritten(3, RewriteKind.SHORTENED))


def test_tool_results_that_come_one_by_one_are_joined(folder: Path) -> None:
    messages = [user("go"), *call(0, calls=2)]
    assert rewritten(ChatRenderer(folder), messages[:3], messages) == (Rewritten(2, RewriteKind.JOINED),)


def test_tools_that_move_to_the_last_user_message_rewrite_two_messages(folder: Path) -> None:
    source = (
        "{% for m in messages %}<|im_start|>{% if loop.last and tools %}{{ tools | tojson }}{% endif %}"
        "{{ m.content }}<|im_end|>{% endfor %}"
    )
    renderer = ChatRenderer(folder, template_override=source)
    first = [user("a")]
    assert rewritten(renderer, first, [*first, user("b")], tools=(TOOL,)) == (
        Rewritten(0, RewriteKind.SHORTENED),
    )
    assert rewritten(renderer, first, tools=(TOOL,)) == (Rewritten(0, RewriteKind.EXTENDED),)


def test_a_template_that_counts_its_messages_changes_all_of_them(folder: Path) -> None:
    source = "{% for m in messages %}<|im_start|>{{ messages | length }}{{ m.content }}{% endfor %}"
    renderer = ChatRenderer(folder, template_override=source)
    first = [user("a"), user("b")]
    assert rewritten(renderer, first, [*first, user("c")]) == (
        Rewritten(0, RewriteKind.CHANGED),
        Rewritten(1, RewriteKind.CHANGED),
    )


def test_a_message_that_appears_only_while_it_is_last_is_shortened_to_nothing(folder: Path) -> None:
    source = "{% for m in messages %}<|im_start|>{% if loop.last %}{{ m.content }}{% endif %}{% endfor %}"
    renderer = ChatRenderer(folder, template_override=source)
    assert rewritten(renderer, [user("a")], [user("a"), user("b")]) == (Rewritten(0, RewriteKind.SHORTENED),)


def test_a_message_that_the_caller_changed_is_not_called_rewritten(folder: Path) -> None:
    renderer = ChatRenderer(folder)
    first = [user("a"), answer("b"), user("c")]
    assert rewritten(renderer, first, [user("a"), answer("x"), user("c"), answer("d"), user("e")]) == ()


def test_other_tools_are_another_conversation(folder: Path) -> None:
    renderer = ChatRenderer(folder)
    first = [Message(role="system", content="s"), user("a")]
    rewritten(renderer, first)
    assert rewritten(renderer, first, tools=(TOOL,)) == ()


def test_two_conversations_side_by_side_are_each_compared_with_their_own(folder: Path) -> None:
    renderer = ChatRenderer(folder)
    one = [user("one"), *call(0, reasoning="why")]
    two = [user("two"), *call(1, reasoning="because")]
    rewritten(renderer, one, two)
    assert rewritten(renderer, [*one, user("more")]) == (Rewritten(1, RewriteKind.SHORTENED),)
    assert rewritten(renderer, [*two, user("more")]) == (Rewritten(1, RewriteKind.SHORTENED),)


def test_without_spans_nothing_is_said(folder: Path) -> None:
    renderer = ChatRenderer(folder)
    loop = [user("go"), *call(0, reasoning="why")]
    renderer.render(loop, [])
    reuse = renderer.render([*loop, user("more")], []).reuse
    assert reuse is not None
    assert reuse.rewritten == ()
