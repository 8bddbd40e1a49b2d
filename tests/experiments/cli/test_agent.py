"""The command as a program against a scripted server, and what its parts show."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from experiments.agent.approval import ApprovalRequest
from experiments.agent.loop import run_turn
from experiments.agent.saving import open_run
from experiments.agent.settings import TurnSettings
from experiments.cli.agent_approver import TerminalApprover
from experiments.cli.agent_view import AgentView, Report
from serving.assembler import BarPolicy, ContextPolicy, Trajectory
from serving.call import DecodeOptions
from serving.client import ToolCallComplete
from tests.support.made_tools import MadeTools, contract
from tests.support.scripted import CONTEXT, ScriptedCaller, exchange, received
from tests.support.stub import running_stub

ROOT = Path(__file__).parents[3]


def agent(*arguments: str, folder: Path, said: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "experiments.cli.main", "agent", *arguments, "--root", str(folder)],
        input=said,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "120", "CTXLAB_CACHE": str(folder)},
    )


def test_a_task_is_answered_and_its_folder_opens_again(tmp_path: Path) -> None:
    with running_stub("vllm") as stub:
        done = agent("Say ok.", "--url", stub.base_url, "--save", str(tmp_path / "run"), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "step 1" in done.stdout
    assert "1 model calls · 0 tools run" in done.stdout
    opened = open_run(tmp_path / "run")
    assert (opened.run.task, len(opened.steps)) == ("Say ok.", 1)
    assert opened.end is not None
    assert opened.end.text == "ok"


def test_json_is_one_document_and_nothing_else(tmp_path: Path) -> None:
    with running_stub("vllm") as stub:
        done = agent("Say ok.", "--url", stub.base_url, "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["answer"], document["reason"], len(document["steps"])) == ("ok", None, 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--fault", "nope"], "There is no fault 'nope'"),
        (["--tools", "nope"], "There is no group of tools 'nope'"),
        (["--policy", "nope"], "named policy"),
    ],
)
def test_a_wrong_name_is_refused_before_anything_starts(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    done = agent("Go.", *arguments, folder=tmp_path)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())


def test_the_trace_shows_calls_refusals_the_bar_and_what_started_early() -> None:
    out = io.StringIO()
    view, report = AgentView(Console(file=out, soft_wrap=True, highlight=False)), Report()
    tools = MadeTools((contract("look"),))
    call = received("look", "{}", "a")
    caller = ScriptedCaller(
        [exchange("", call, received("nope", "{}", "b", 1), reasoning="Hm."), exchange("done")],
        streams={0: [ToolCallComplete(1, call)]},
    )
    settings = TurnSettings(
        context=CONTEXT,
        window=9000,
        decode=DecodeOptions(max_tokens=9),
        salt="s",
        policy=ContextPolicy(status_bar=BarPolicy()),
    )
    for event in run_turn(caller, tools, Trajectory(tools=tools.specs, turns=()), "Go.", settings):
        view.show(event)
        report.take(event)
    shown = out.getvalue()
    assert "⚙ look({}) while the model still writes" in shown
    assert "⚙ nope({}) refused: unknown_tool" in shown
    assert "did {}" in shown
    assert 'calls of "look": 1' in shown
    assert shown.index("step 1") < shown.index("look") < shown.index("step 2")
    document = report.document()
    assert document["answer"] == "done"
    (first, _) = document["steps"]
    assert [call["early"] for call in first["calls"]] == [True, False]
    assert "2 model calls · 1 tools run, 1 of them early, 1 refused" in report.line()


REQUEST = ApprovalRequest(call_sha256="a" * 64, tool="dial", arguments='{"n": 1}', effect="It rings.")


@pytest.mark.parametrize(("said", "approved"), [("yes", True), ("YES", False), ("", False), ("y", False)])
def test_only_the_word_yes_approves_and_only_the_call_that_is_shown(
    said: str, approved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    monkeypatch.setattr("builtins.input", lambda prompt: said)
    decision = TerminalApprover(Console(file=out), interactive=True).decide(REQUEST)
    assert decision is not None
    assert (decision.approved, decision.call_sha256) == (approved, REQUEST.call_sha256)
    assert 'dial({"n": 1})' in out.getvalue()


def test_without_a_terminal_nobody_decides() -> None:
    assert TerminalApprover(Console(file=io.StringIO()), interactive=False).decide(REQUEST) is None
