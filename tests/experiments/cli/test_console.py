from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from experiments.cli.console import ConsoleProgress, print_json


def printed(*, terminal: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, color_system=None, soft_wrap=True, highlight=False)
    with ConsoleProgress(console) as progress:
        progress.begin("ask \x1b]0;owned\x07[red]")
        progress.note("a name\n✓ done \x9b2J\u202e[bold]")
    return out.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_stages_and_notes_cannot_command_the_terminal_or_forge_a_line(terminal: bool) -> None:
    text = printed(terminal=terminal)
    assert "\x1b]0" not in text
    assert not set(text) & {"\x07", "\x9b", "\u202e"}
    assert "\\u001b]0;owned\\u0007[red]" in text
    assert "a name\\u000a✓ done \\u009b2J\\u202e[bold]" in text


@given(st.text(st.characters(codec=None) | st.sampled_from("\x1b\x7f\x9b\u202e\ud800\U000e0041é模")))
def test_json_means_what_was_given_and_holds_nothing_hidden(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        out = io.StringIO()
        patch.setattr("sys.stdout", out)
        print_json({text: [text]})
    line = out.getvalue()
    line.encode()
    assert not set(line) & set("\x1b\x7f\x9b\u202e\U000e0041")
    # A surrogate pair written as two halves is read as the one character that it is in UTF-16.
    assert json.loads(line) == json.loads(json.dumps({text: [text]}))
