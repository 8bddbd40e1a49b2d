from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.agent.tools.outcome import ToolError
from experiments.agent.tools.pattern import LinePattern

atoms = st.sampled_from(
    ["a", "b", "_", ".", "[ab]", "[^a]", r"\w", r"\d", r"\s", r"\.", r"\b", r"\B", "^", "$", "é", " "]
)
counts = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,}", "{,2}", "{0,3}", "*?", "+?"])


def _join(parts: list[tuple[str, str]]) -> str:
    # `re` refuses to repeat a condition in some versions, so only characters and groups are repeated.
    return "".join(atom if atom in ("^", "$", r"\b", r"\B") else atom + count for atom, count in parts)


patterns = st.recursive(
    st.lists(st.tuples(atoms, counts), max_size=4).map(_join),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map("|".join)
        | st.tuples(inner, counts).map(lambda pair: f"({pair[0]}){pair[1]}")
        | st.lists(inner, min_size=1, max_size=2).map("".join)
    ),
    max_leaves=5,
)


@settings(max_examples=600)
@given(pattern=patterns, line=st.text("ab_ .é1", min_size=1, max_size=12))
def test_it_finds_what_re_finds(pattern: str, line: str) -> None:
    try:
        compiled = LinePattern(pattern)
    except ToolError as refused:
        assert "states" in str(refused) or "characters" in str(refused)
        return
    assert compiled.found_in(line) == (re.search(pattern, line, re.DOTALL) is not None)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a*)*$b", "a*a*a*a*a*a*a*a*b", "(.*)*x|(.*)*y"])
def test_patterns_that_would_backtrack_for_ever_end(pattern: str) -> None:
    assert not LinePattern(pattern).found_in("a" * 2_000)


def test_a_pattern_that_needs_too_many_steps_is_refused_by_count_and_not_by_time() -> None:
    pattern = LinePattern("(a|b)*a" + "(a|b)" * 30 + "c")
    noise = random.Random(7)
    lines = ["".join(noise.choices("ab", k=2_000)) for _ in range(200)]
    with pytest.raises(ToolError, match="too much"):
        for line in lines:
            pattern.found_in(line)


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "[a",
        "*a",
        r"\1",
        "(?=a)",
        "(?P<n>a)",
        "a**",
        r"\x41",
        "a{3,1}",
        "a{0}",
        "[z-a]",
        "\\",
        "x" * 201,
        "(((a{20}){20}){20})",
    ],
)
def test_what_is_not_supported_is_said_and_not_guessed(pattern: str) -> None:
    with pytest.raises(ToolError):
        LinePattern(pattern)


@given(st.text(max_size=30))
def test_no_pattern_raises_anything_else(pattern: str) -> None:
    try:
        LinePattern(pattern).found_in("some line")
    except ToolError as error:
        assert str(error)
