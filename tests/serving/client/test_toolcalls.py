from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from serving.client.events import ToolCallFragment
from serving.client.toolcalls import ToolCallAssembly

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def _fragment(at_ns: int, arguments: str) -> ToolCallFragment:
    return ToolCallFragment(at_ns, 0, None, None, arguments, ())


@given(st.dictionaries(st.text(), _JSON), st.booleans(), st.integers(1, 5))
def test_a_call_is_complete_exactly_when_its_json_closes(arguments, escaped, size):
    text = json.dumps(arguments, ensure_ascii=escaped)
    assembly = ToolCallAssembly(index=0, first_ns=0)
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    closed = [assembly.add(_fragment(at, piece)) for at, piece in enumerate(pieces)]
    assert closed == [False] * (len(pieces) - 1) + [True]
    assert assembly.snapshot().closed_ns == len(pieces) - 1
    assert assembly.snapshot().arguments == text


def test_matching_brackets_that_are_no_json_leave_the_call_open():
    assembly = ToolCallAssembly(index=0, first_ns=0)
    assert not assembly.add(_fragment(1, "{not json}"))
    assert assembly.snapshot().closed_ns is None


def test_what_follows_the_closing_is_kept_but_closes_nothing_again():
    assembly = ToolCallAssembly(index=0, first_ns=0)
    assert assembly.add(_fragment(1, "{}"))
    assert not assembly.add(_fragment(2, "{}"))
    assert assembly.snapshot().arguments == "{}{}"
    assert assembly.snapshot().closed_ns == 1
