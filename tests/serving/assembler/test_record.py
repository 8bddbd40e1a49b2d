from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st

from serving.assembler import ContextItem, Note

TEXT = st.text(alphabet="aé日 ", min_size=1, max_size=8)


@given(first=TEXT, second=TEXT, asked=st.booleans())
def test_a_copy_with_other_content_has_the_hash_and_size_of_that_content(
    first: str, second: str, asked: bool
) -> None:
    item = ContextItem(id="n", payload=Note(text=first))
    if asked:
        assert len(item.sha256) == 64
    changed = item.model_copy(update={"payload": Note(text=second)})
    fresh = ContextItem(id="n", payload=Note(text=second))
    assert (changed.sha256, changed.content_size) == (fresh.sha256, fresh.content_size)
    assert fresh.content_size == len(fresh.content_json.encode())


def test_what_was_computed_is_no_part_of_the_value() -> None:
    asked, fresh = (ContextItem(id="n", payload=Note(text="t")) for _ in range(2))
    assert asked.sha256
    assert asked == fresh == copy.copy(asked) == asked.model_copy()
    assert asked.model_dump_json() == fresh.model_dump_json()
    assert hash(asked.payload) == hash(fresh.payload)
