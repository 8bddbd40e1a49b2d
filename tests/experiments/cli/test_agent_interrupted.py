"""A task whose program or whose server is killed: what was complete is kept, and what happened is said."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from experiments.agent.saving import open_run
from tests.support.marked import marked, marking
from tests.support.told_server import ToldServer, calling, saying, told_server

ROOT = Path(__file__).parents[3]
WAIT_S = 300
"""No claim about speed: on a machine that does other work, a program may take a minute to start."""


def start(told: ToldServer, folder: Path) -> subprocess.Popen[str]:
    words = ["agent", "Look around.", "--url", told.url, "--root", str(folder), "--save", str(folder / "run")]
    return subprocess.Popen(
        [sys.executable, "-m", "experiments.cli.main", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "200", "CTXLAB_CACHE": str(folder)},
    )


def in_the_third_call(told: ToldServer, folder: Path) -> subprocess.Popen[str]:
    """The command, waiting for an answer that does not come, with two complete steps behind it."""
    told.answers += [calling("list_dir", "{}"), calling("current_directory", "{}"), told.hanging]
    process = start(told, folder)
    assert told.hung.wait(WAIT_S), process.communicate(timeout=WAIT_S)
    return process


def test_a_killed_run_opens_with_every_complete_step_and_its_folder_is_not_written_over(
    tmp_path: Path,
) -> None:
    with told_server([]) as told:
        process = in_the_third_call(told, tmp_path)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=WAIT_S)
        opened = open_run(tmp_path / "run")
        assert [[tool.name for tool in step.ran] for step in opened.steps] == [
            ["list_dir"],
            ["current_directory"],
        ]
        assert opened.end is None
        again = start(told, tmp_path)
        _, err = again.communicate(timeout=WAIT_S)
    assert again.returncode == 2
    assert "holds a run that was interrupted (`ctxlab trajectory` opens it); name another" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_task_at_once_and_leaves_a_page_of_its_complete_steps(
    number: int, tmp_path: Path
) -> None:
    with told_server([]) as told:
        process = in_the_third_call(told, tmp_path)
        process.send_signal(number)
        _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    assert len(open_run(tmp_path / "run").steps) == 2
    assert "It was interrupted" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_a_server_that_is_gone_in_the_middle_is_told_in_one_sentence_and_the_steps_are_kept(
    tmp_path: Path,
) -> None:
    """The answer is cut off, and nobody listens at the port any more."""
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        told = ToldServer([], url=server.stdout.readline().strip())
        process = start(told, tmp_path)
        assert server.stdout.readline() == "third\n"
        server.kill()
        _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert [line for line in err.splitlines() if line.startswith("error: ")] == [err.strip().splitlines()[-1]]
    assert told.url.removeprefix("http://") in err
    assert "Traceback" not in err
    assert len(open_run(tmp_path / "run").steps) == 2
    assert not psutil.pid_exists(process.pid)


SERVER = """import threading
from tests.support.told_server import calling, told_server
from tests.support.scripts import chunk

def third():
    yield chunk({"role": "assistant", "content": "I am"})
    print("third", flush=True)
    threading.Event().wait()

with told_server([calling("list_dir", "{}"), calling("current_directory", "{}"), third]) as told:
    print(told.url, flush=True)
    threading.Event().wait()
"""


def test_a_task_that_ends_well_says_where_its_page_is(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    with told_server([calling("list_dir", "{}"), saying("One file.")]) as told:
        process = start(told, tmp_path)
        out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, err
    assert f"saved: {tmp_path / 'run' / 'report.html'}" in out
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "One file." in page
    assert "a.txt" in page


@pytest.mark.full
def test_an_engine_that_dies_in_the_middle_is_told_with_its_root_cause_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    """The engine that the command itself started; random weights write until their limit, so there is time."""
    mark = uuid.uuid4().hex
    words = ["agent", "Go.", "--model", "qwen3-nano-shape", "--max-tokens", "4000", "--root", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments.cli.main", *words, "--save", str(tmp_path / "run")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | marking(mark) | {"COLUMNS": "200", "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    while "step 1" not in process.stdout.readline():
        assert process.poll() is None
    engine = next(one for one in marked(mark) if "EngineCore" in one.name())
    engine.kill()
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert len([line for line in err.splitlines() if line.startswith("error: ")]) == 1, err
    assert "engine" in err.lower()
    assert "Traceback" not in err
    assert marked(mark) == []
    assert open_run(tmp_path / "run").end is None
    assert "No step was completed" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
