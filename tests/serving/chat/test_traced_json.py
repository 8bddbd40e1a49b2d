from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from serving.chat.traced import Leaf, runs_of, trace
from serving.chat.traced_json import to_json

TEXT = st.text(alphabet=st.sampled_from('ab \n\t"\\é<>😀\x01'), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def characters(text: str) -> list[tuple[Leaf | None, int]]:
    """(leaf, offset) of every character; where one source character became several, each repeats it."""
    return [
        (run.leaf, run.offset + i if run.offset >= 0 else run.offset)
        for run in runs_of(text)
        for i in range(run.length)
    ]


@given(value=JSON, options=st.fixed_dictionaries({}, optional={
    "ensure_ascii": st.booleans(),
    "indent": st.sampled_from([None, 0, 2, "\t"]),
    "separators": st.sampled_from([None, (",", ":"), [" , ", " : "]]),
    "sort_keys": st.booleans(),
}))  # fmt: skip
def test_json_with_origins_equals_json_dumps(value: Any, options: dict[str, Any]) -> None:
    encoded = to_json(trace(value), **options)
    assert encoded == json.dumps(value, **{"ensure_ascii": False, **options})
    assert sum(run.length for run in runs_of(encoded)) == len(encoded)


@given(text=TEXT)
def test_inside_json_every_character_points_to_the_one_it_escapes(text: str) -> None:
    encoded = to_json(trace({"k": text}, ("x",)))
    pieces: dict[int, str] = {}
    for character, (leaf, offset) in zip(encoded, characters(encoded), strict=True):
        assert leaf is not None
        if leaf.path == ("x", "k") and offset >= 0:
            pieces[offset] = pieces.get(offset, "") + character
    assert [json.loads(f'"{piece}"') for _, piece in sorted(pieces.items())] == list(text)


def test_keys_quotes_and_brackets_belong_to_their_container() -> None:
    encoded = to_json(trace({"a": {"b": "c"}, "n": [1]}, ("x",)))
    owners = [
        (character, leaf.path) for character, (leaf, _) in zip(encoded, characters(encoded), strict=True)
    ]
    assert encoded == '{"a": {"b": "c"}, "n": [1]}'
    assert {path for _, path in owners} == {("x",), ("x", "a"), ("x", "a", "b")}
    assert owners[0] == ("{", ("x",))
    assert owners[6] == ("{", ("x", "a"))
    assert owners[13] == ("c", ("x", "a", "b"))
