"""The `ctxlab` command run from its own entry point, in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]


def one_sentence(done: Done, words: str) -> None:
    """Exit code 2, nothing on stdout, and one line on stderr that holds `words`."""
    assert done.code == 2, done
    assert done.out == ""
    lines = done.err.splitlines()
    assert len(lines) == 1, done.err
    assert lines[0].startswith("error: ")
    assert words in lines[0]
