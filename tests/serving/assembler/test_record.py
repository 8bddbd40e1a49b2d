from __future__ import annotations

import copy
import warnings

from hypothesis import given
from hypothesis import strategies as st

from serving.assembler import AssistantTurn, ContextItem, Note, ToolCall, ToolResult, ToolStep, UserTurn
from serving.assembler.payloads import OPEN_CALL_TEXT

TEXT = st.text(alphabet="aé日 ", min_size=1, max_size=8)


@given(first=TEXT, second=TEXT, asked=st.booleans())
def test_a_copy_with_other_content_has_the_hash_and_size_of_that_content(
    first: str, second: str, asked: bool
) -> None:
    note = Note(text=first)
    item = ContextItem(id="n", payload=note)
    if asked:
        assert len(item.sha256) == 64
    fresh = ContextItem(id="n", payload=Note(text=second))
    for payload in (note.model_copy(update={"text": second}), Note(text=second)):
        changed = item.model_copy(update={"payload": payload})
        assert (changed.sha256, changed.content_size) == (fresh.sha256, fresh.content_size)
    assert fresh.content_size == len(fresh.content_json.encode())


def test_a_copied_turn_is_sent_as_its_own_words() -> None:
    turn = AssistantTurn(text="a", reasoning="why")
    assert turn.messages(echo=True)[0].reasoning == "why"
    assert turn.messages(echo=False)[0].reasoning is None
    changed = turn.model_copy(update={"text": "b"})
    assert [changed.messages(echo=echo)[0].content for echo in (True, False)] == ["b", "b"]


def test_a_step_is_sent_the_same_with_and_without_reasoning_but_for_the_reasoning() -> None:
    calls = (ToolCall(id="c", name="f", arguments="{}"), ToolCall(id="d", name="f", arguments="{}"))
    step = ToolStep(calls=calls, results=(ToolResult(call_id="d", content="out"),), reasoning="why")
    echoed, bare = step.messages(echo=True), step.messages(echo=False)
    assert [message.content for message in echoed] == ["", OPEN_CALL_TEXT, "out"]
    assert (echoed[0].reasoning, bare[0].reasoning) == ("why", None)
    assert bare == tuple(message.model_copy(update={"reasoning": None}) for message in echoed)


def test_what_was_computed_is_no_part_of_the_value() -> None:
    asked, fresh = (ContextItem(id="n", payload=UserTurn(text="t")) for _ in range(2))
    assert asked.sha256
    assert asked.payload.messages(echo=True)
    assert asked == fresh == copy.copy(asked) == asked.model_copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert asked.model_dump_json() == fresh.model_dump_json()
    assert ContextItem.model_validate_json(asked.model_dump_json()) == fresh
    assert hash(asked.payload) == hash(fresh.payload)
