from __future__ import annotations

import json

import pytest

from serving.assembler import ToolCall, ToolResult, ToolStep, history_items
from serving.assembler.working_directory import ShellTool, working_directory

SHELL = ShellTool(name="bash")


def after(*commands: str, failed: bool = False, start: str | None = "/work") -> str | None:
    steps = [
        ToolStep(
            calls=(ToolCall(id=f"c{index}", name="bash", arguments=json.dumps({"command": command})),),
            results=(ToolResult(call_id=f"c{index}", content="", failed=failed),),
        )
        for index, command in enumerate(commands)
    ]
    return working_directory(history_items(steps), SHELL, start, home="/home/u")


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        ((), "/work"),
        (("ls -la", "make | tee log; echo done"), "/work"),
        (("cd src",), "/work/src"),
        (("cd src", "cd ../tests/."), "/work/tests"),
        (("cd /a/b && make && cd ..",), "/a"),
        (("cd src &&\nls",), "/work/src"),
        (("cd",), "/home/u"),
        (("cd ~/x",), "/home/u/x"),
        (("cd src", "cd -"), "/work"),
        (("cd src", "cd -", "cd -"), "/work/src"),
        (("cd 'two words'",), "/work/two words"),
        (('cd "a b" && ls',), "/work/a b"),
        (("cd ../../../..",), "/"),
        (("cd //etc",), "/etc"),
        (("bash -c 'cd /tmp'",), "/work"),
        (("[ -d src ] && cd src",), "/work/src"),
        (("cat cd.txt", "./cd-all"), "/work"),
    ],
)
def test_a_directory_follows_every_cd_that_the_words_prove(commands: tuple[str, ...], expected: str) -> None:
    assert after(*commands) == expected


@pytest.mark.parametrize(
    "command",
    [
        "cd $HOME",
        'cd "$(pwd)/x"',
        "cd `pwd`",
        "cd a*",
        "cd ~other",
        "cd -P src",
        "cd a b",
        "cd src; ls",
        "cd src || true",
        "cd src | cat",
        "cd src &",
        "(cd src && ls)",
        "pushd src",
        "eval 'cd src'",
        ". ./move.sh",
        "if true; then cd src; fi",
        "cd 'src",
        "cd src # a note",
        'cd src";"x',
        'echo ";" cd /x',
        "env cd /x",
        "\\cd /x",
        "'cd' /x",
        "cat <<E && cd /x\nE",
    ],
)
def test_a_directory_that_the_words_do_not_prove_is_unknown(command: str) -> None:
    assert after(command) is None


def test_an_absolute_cd_ends_not_knowing_and_a_relative_one_does_not() -> None:
    assert after("cd $X", "cd src") is None
    assert after("cd $X", "cd /tmp") == "/tmp"
    assert after("cd src", start=None) is None


def test_a_cd_that_failed_did_not_move_and_a_failed_chain_is_unknown() -> None:
    assert after("cd src", failed=True) == "/work"
    assert after("cd src && make", failed=True) is None
    assert after("make", failed=True) == "/work"


def test_a_call_without_a_result_or_of_another_tool_is_judged_by_what_it_can_have_done() -> None:
    def place(call: ToolCall) -> str | None:
        return working_directory(history_items([ToolStep(calls=(call,))]), SHELL, "/work")

    assert place(ToolCall(id="a", name="bash", arguments='{"command": "cd /x"}')) is None
    assert place(ToolCall(id="a", name="bash", arguments='{"command": "ls"}')) == "/work"
    assert place(ToolCall(id="a", name="python", arguments='{"command": "cd /x"}')) == "/work"
    assert place(ToolCall(id="a", name="bash", arguments='{"command": ["cd", "/x"]}')) == "/work"
    assert place(ToolCall(id="a", name="bash", arguments="cd /x")) == "/work"
