from __future__ import annotations

import io
import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from experiments.cli.untrusted import untrusted, visible

anything = st.text(st.characters(codec=None) | st.sampled_from("\x1b\x9b\x07\r\u202e[]31m"))


@given(anything)
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    left = {unicodedata.category(char) for char in visible(text) if char not in "\n\t"}
    assert "Cc" not in left
    assert "Cs" not in left
    assert not set(visible(text)) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    visible(text).encode()


@given(st.lists(anything, max_size=4))
def test_pieces_of_a_stream_are_treated_as_the_whole(pieces: list[str]) -> None:
    assert "".join(map(visible, pieces)) == visible("".join(pieces))


def test_ordinary_text_stays_as_it_is() -> None:
    assert visible("naïve 日本 🙂\n\t[bold]x[/] \\[y] :smile:") == "naïve 日本 🙂\n\t[bold]x[/] \\[y] :smile:"


def test_an_escape_sequence_is_seen_and_not_obeyed() -> None:
    assert visible("\x1b]0;title\x07\x1b[2J") == "␛]0;title␇␛[2J"


def test_markup_in_untrusted_text_means_nothing() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="standard", soft_wrap=True, highlight=False)
    console.print(untrusted("[red]x[/red] [/nope] :smile:"), end="")
    assert out.getvalue() == "[red]x[/red] [/nope] :smile:"
