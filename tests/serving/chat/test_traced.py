from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.chat.traced import BLURRED, LOST, Run, Traced, adopt, concat, join, runs_of

TEXT = st.text(alphabet=st.sampled_from('ab \n\t"\\é<>😀\x01'), max_size=12)


def characters(text: str) -> list[tuple[Any, int]]:
    """(leaf, offset) of every character."""
    return [
        (run.leaf, run.offset + i if run.offset >= 0 else run.offset)
        for run in runs_of(text)
        for i in range(run.length)
    ]


def assert_true_to(result: str, source: str) -> None:
    """Every traced character is the character of the source that it claims to be."""
    for character, (leaf, offset) in zip(str(result), characters(result), strict=True):
        if leaf is not None:
            assert source[offset] == character


OPERATIONS: dict[str, Any] = {
    "strip": lambda s: s.strip(),
    "strip characters": lambda s: s.strip("a\n"),
    "lstrip": lambda s: s.lstrip("\n"),
    "rstrip": lambda s: s.rstrip(),
    "slice": lambda s: s[1:-1],
    "reverse": lambda s: s[::-1],
    "every other": lambda s: s[::2],
    "split": lambda s: s.split(),
    "split once": lambda s: s.split(None, 1),
    "split at": lambda s: s.split("a"),
    "split at once": lambda s: s.split("b", 1),
    "rsplit": lambda s: s.rsplit(None, 1),
    "rsplit at": lambda s: s.rsplit("a", 1),
    "splitlines": lambda s: s.splitlines(),
    "splitlines with ends": lambda s: s.splitlines(keepends=True),
    "partition": lambda s: s.partition("a"),
    "rpartition": lambda s: s.rpartition("b"),
    "removeprefix": lambda s: s.removeprefix("a"),
    "removesuffix": lambda s: s.removesuffix("\n"),
    "replace": lambda s: s.replace("a", "XY"),
    "replace once": lambda s: s.replace("ab", "", 1),
    "add": lambda s: "<" + s + ">",
    "iterate": lambda s: list(s),
    "join": lambda s: s.join(["1", "2", "3"]),
}


@pytest.mark.parametrize("name", OPERATIONS)
@given(text=TEXT)
def test_a_traced_string_behaves_as_the_plain_one_and_keeps_true_origins(name: str, text: str) -> None:
    traced = Traced.whole(text, ("x",))
    plain, result = OPERATIONS[name](text), OPERATIONS[name](traced)
    assert result == plain
    for piece in [result] if isinstance(result, str) else result:
        if not name.startswith("replace"):
            assert_true_to(piece, text)
        assert sum(run.length for run in runs_of(piece)) == len(piece)


def test_joining_only_plain_strings_gives_a_plain_string() -> None:
    assert type(concat(["a", "b"])) is str
    assert type(join(",", ["a", Traced.whole("b", ("x",))])) is Traced


def test_a_result_of_unknown_making_keeps_the_leaf_when_it_is_the_only_one() -> None:
    one, two = Traced.whole("a", ("x",)), Traced.whole("b", ("y",))
    assert runs_of(adopt("aa", [one])) == (Run(2, one.runs[0].leaf, BLURRED),)
    assert runs_of(adopt("ab", [one, {"k": two}])) == (Run(2, LOST, BLURRED),)
    assert type(adopt("ab", ["plain"])) is str


def test_recasing_keeps_positions_only_while_the_length_stays() -> None:
    assert runs_of(Traced.whole("ab", ("x",)).upper())[0].offset == 0
    assert runs_of(Traced.whole("ß", ("x",)).upper())[0].offset == BLURRED
