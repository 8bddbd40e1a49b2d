from __future__ import annotations

import io
import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from experiments.cli.console import ConsoleProgress, print_json
from experiments.cli.serve import serve
from serving.errors import LabError


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


def test_json_without_indentation_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"url": "http://h", "log": "a\nb"}, indent=False)
    text = capsys.readouterr().out
    assert text.count("\n") == 1
    assert json.loads(text) == {"url": "http://h", "log": "a\nb"}


def test_a_served_model_is_told_in_one_json_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> None:
        raise LabError("the engine is gone")

    class Engine(nullcontext[None]):
        base_url, pid, log_path, check = "http://h:1", 7, "/log", staticmethod(gone)

    plan = SimpleNamespace(folder=SimpleNamespace(name="m"), config=SimpleNamespace(kv_events=None))
    monkeypatch.setattr("serving.launch.plan_launch", lambda *_, **__: plan)
    monkeypatch.setattr("serving.launch.launch", lambda *_, **__: Engine())
    monkeypatch.setattr("experiments.cli.serve.describe_plan", lambda *_: None)
    with pytest.raises(LabError):
        serve(as_json=True)
    assert [json.loads(line)["url"] for line in capsys.readouterr().out.splitlines()] == ["http://h:1"]
