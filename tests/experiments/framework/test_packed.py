from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.framework.packed import pack, unpack


@given(st.text() | st.text(alphabet="\ud800ab"))
def test_every_text_comes_back(text: str) -> None:
    assert unpack(pack(text)) == text


def test_what_repeats_itself_becomes_short() -> None:
    assert len(pack("the same words again; " * 100)) < 100


@pytest.mark.parametrize("packed", ["", "!!!", "YWJj", pack("x")[:-4]])
def test_what_was_not_packed_is_refused(packed: str) -> None:
    with pytest.raises(ValueError, match="not compressed text"):
        unpack(packed)
