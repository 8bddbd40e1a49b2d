from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from experiments.framework.plain import visible


@given(st.text(st.characters(codec=None), max_size=50))
def test_nothing_hidden_is_left(text: str) -> None:
    shown = visible(text)
    assert not [
        c for c in shown if c not in "\n\t" and unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    ]


def test_hidden_characters_are_spelt_out() -> None:
    assert visible("a\u202eb\x00\ud800\U000e0041") == "a\\u202eb\\u0000\\ud800\\U000e0041"
    assert visible("two\nlines\tü模") == "two\nlines\tü模"


def test_a_cut_says_how_long_the_text_was() -> None:
    assert visible("x" * 100_000, limit=3) == "xxx… (100,000 characters)"
    assert visible("xxx", limit=3) == "xxx"
