from __future__ import annotations

from experiments.framework.pages import cut, shown


def test_a_cut_says_how_long_the_text_was() -> None:
    assert cut("x" * 100_000, 3) == "xxx… (100,000 characters)"
    assert cut("xxx", 3) == "xxx"


def test_what_is_hidden_is_spelt_out_before_the_cut_is_marked() -> None:
    assert cut("a\u202eb\x00\ud800\U000e0041", 2) == "a\\u202e… (6 characters)"
    assert shown("two\nlines\tü模\u202e") == "two\nlines\tü模\\u202e"
