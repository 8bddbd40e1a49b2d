"""A completion taken apart where no server's parser does it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.agent.taggedcalls import TaggedCall, TaggedReply, TaggedStream

CALL = '<tool_call>\n{"name": "look", "arguments": {"x":  1}}\n</tool_call>'
LOOK = TaggedCall("look", '{"x":  1}')


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("words", TaggedReply("words", "", (), False)),
        (f"I look.\n{CALL}", TaggedReply("I look.", "", (LOOK,), False)),
        (f"{CALL}\n{CALL}", TaggedReply("", "", (LOOK, LOOK), False)),
        (f"<think>\nhm {CALL}\n</think>\n\n{CALL}", TaggedReply("", f"hm {CALL}", (LOOK,), False)),
        (
            f"opened by the template\n</think>\n\n{CALL}",
            TaggedReply("", "opened by the template", (LOOK,), False),
        ),
        ("<think>\nwas cut", TaggedReply("", "was cut", (), False)),
        (
            "<tool_call>\nno JSON\n</tool_call>",
            TaggedReply("<tool_call>\nno JSON\n</tool_call>", "", (), True),
        ),
        (CALL[:-13], TaggedReply(CALL[:-13], "", (), True)),
        ('<tool_call>{"name": "n"}</tool_call>', TaggedReply("", "", (TaggedCall("n", "{}"),), False)),
    ],
)
def test_reasoning_words_and_calls_are_told_apart(text: str, reply: TaggedReply) -> None:
    assert TaggedReply.read(text) == reply


@given(
    st.lists(
        st.sampled_from(
            [CALL, "<tool_call>", "</tool_call>", "<think>", "</think>", "words\n", '{"name"', "\n"]
        ),
        max_size=8,
    ),
    st.integers(1, 40),
)
def test_calls_found_in_pieces_after_the_thinking_are_those_of_the_whole(parts: list[str], size: int) -> None:
    text = "<think>\n</think>\n" + "".join(parts)
    stream = TaggedStream()
    found = [call for at in range(0, len(text), size) for call in stream.feed(text[at : at + size])]
    assert tuple(found) == TaggedReply.read(text).calls


def test_a_call_is_given_with_the_last_letter_of_its_closing_tag() -> None:
    stream = TaggedStream()
    given_at = [place for place, letter in enumerate(CALL + " and more") if stream.feed(letter)]
    assert given_at == [len(CALL) - 1]


def test_nothing_is_a_call_while_the_model_thinks() -> None:
    stream = TaggedStream()
    assert stream.feed(f"<think>I could {CALL}") == []
    assert stream.feed(f"</think>{CALL}") == [LOOK]
