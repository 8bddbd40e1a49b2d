from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.agent.callform import FALLBACK_FORMS, CallForm, Said, read_answer
from tests.support.scripted import exchange, received

NAMES = ("read_file", "grep")


def read(text: str, *calls, accept=FALLBACK_FORMS) -> Said:
    return read_answer(exchange(text, *calls), tool_names=NAMES, used_ids=(), accept=accept)


def fence(body: str, closing: str = "\n```") -> str:
    return f"```json\n{body}{closing}"


@pytest.mark.parametrize(
    "text",
    [
        "plain words",
        fence('{"name": "rm", "arguments": {}}'),
        fence('{"name": "grep"}'),
        fence('{"name": ["grep"], "arguments": {}}'),
        fence('[{"name": "grep", "arguments": {}}]'),
        fence("[" * 5000),
        '{"name": "grep", "arguments": {}}\nis how one would call it',
        '{"name": "rm", "arguments": {}}',
        '{"tool": "grep", "arguments": {}}',
        "```python\nprint()\n```",
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    assert read(text) == Said(CallForm.NONE, text, None, ())


@pytest.mark.parametrize("closing", ["\n```", "\n  ```", "", "\n"])
def test_a_fence_may_end_with_the_text(closing: str) -> None:
    said = read("Look:\n" + fence('{"arguments": {"pattern": "a"}, "name": "grep"}', closing))
    assert (said.form, said.text) == (CallForm.FENCED, "Look:")
    assert said.calls[0].call.arguments == '{"pattern": "a"}'


def test_several_fences_are_several_calls() -> None:
    call = fence('{"name": "grep", "arguments": {}}')
    said = read(f"one\n{call}\ntwo\n{call}")
    assert len({received.call.id for received in said.calls}) == 2
    assert said.text.split() == ["one", "two"]


def test_a_native_call_wins_over_a_fence() -> None:
    text = fence('{"name": "grep", "arguments": {}}')
    said = read(text, received("grep", "{}"))
    assert (said.form, said.text) == (CallForm.NATIVE, text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda v: st.lists(v) | st.dictionaries(st.text(), v),
)


@given(
    arguments=st.dictionaries(st.text(), json_values, max_size=3),
    indent=st.none() | st.integers(0, 3),
    ascii_only=st.booleans(),
)
def test_arguments_are_taken_byte_for_byte(arguments: dict, indent: int | None, ascii_only: bool) -> None:
    body = json.dumps({"name": "grep", "arguments": arguments}, indent=indent, ensure_ascii=ascii_only)
    said = read(fence(body))
    assert said.form is CallForm.FENCED
    (call,) = said.calls
    assert call.call.arguments in body
    assert json.loads(call.call.arguments) == arguments


@given(st.text(alphabet='`{}[]":, \njsonamegrptu\\', max_size=80))
def test_no_text_breaks_it(text: str) -> None:
    read(text)


@pytest.mark.parametrize(
    "text",
    [
        fence('{"name": "grep", "arguments": "x"}'),
        fence('{"name": "grep", "arguments": [1]}'),
        fence('{"name": "grep", "arguments": {}} and more'),
        fence('{"name": "grep", "arguments": {"pattern": '),
        'I look.\n{"name": "grep", "arguments": {"pattern": "a}',
        '<tool_call>\n{"name": "grep", "arguments": {}}\n</tool_call>',
    ],
)
def test_an_attempt_that_cannot_be_read_is_malformed_and_stays_text(text: str) -> None:
    assert read(text) == Said(CallForm.MALFORMED, text, None, ())


def test_nothing_but_the_templates_form_counts_where_no_other_is_accepted() -> None:
    for text in (fence('{"name": "grep", "arguments": {}}'), '{"name": "grep", "arguments": {}}'):
        assert read(text, accept=frozenset()).form is CallForm.NONE


def test_bare_calls_at_the_end_are_calls_and_keep_their_bytes() -> None:
    said = read(
        'I look.\n{"name": "grep", "arguments": {"pattern":  "a"}}\n\n{"name": "grep", "arguments": {}}\n'
    )
    assert (said.form, said.text) == (CallForm.BARE, "I look.")
    assert [received.call.arguments for received in said.calls] == ['{"pattern":  "a"}', "{}"]
    assert len({received.call.id for received in said.calls}) == 2


def test_a_native_call_whose_arguments_are_no_object_is_malformed_and_still_a_call() -> None:
    said = read("", received("grep", '{"pattern": "a'))
    assert (said.form, len(said.calls)) == (CallForm.MALFORMED, 1)
