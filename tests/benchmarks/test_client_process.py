from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.client_process import Clock, answer_of, environment
from serving.errors import LabError

ROOT = Path(__file__).parents[2]

WORKER = """
import os, signal, subprocess, sys, time
from pathlib import Path
job = sys.stdin.readline()
print("@phase importing the world", file=sys.stderr, flush=True)
print("the last words", file=sys.stderr, flush=True)
worker = subprocess.Popen([sys.executable, "-c", "import signal, time; "
    "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"],
    stdout=subprocess.PIPE)
worker.stdout.readline()
Path(sys.argv[1]).write_text(f"{os.getpid()} {worker.pid}")
"""


def command(tmp_path: Path, then: str) -> tuple[list[str], Path]:
    """A client with a worker that ignores polite signals, and the file that will name both."""
    pids = tmp_path / "pids"
    return [sys.executable, "-c", WORKER + then, str(pids)], pids


def gone(pids: Path) -> bool:
    """Whether every process in the file has ended; a killed one may need a moment to be collected."""
    for _ in range(200):
        if not any(_runs(int(pid)) for pid in pids.read_text().split()):
            return True
        time.sleep(0.02)
    return False


def _runs(pid: int) -> bool:
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(shown.stdout.strip()) and not shown.stdout.strip().startswith("Z")


def nothing(_phase: str, _seconds: float) -> None:
    """Watch nothing."""


def test_an_answer_comes_back_and_no_worker_stays(tmp_path: Path) -> None:
    client, pids = command(tmp_path, "print(job.strip())")
    assert answer_of(client, {"a": 1}, "it", watch=nothing, timeout_s=60) == '{"a": 1}\n'
    assert gone(pids)


def test_a_failure_names_the_phase_and_the_last_words_and_leaves_no_worker(tmp_path: Path) -> None:
    client, pids = command(tmp_path, "sys.exit(3)")
    with pytest.raises(LabError, match="exit code 3 while importing the world") as failure:
        answer_of(client, {}, "it", watch=nothing, timeout_s=60)
    assert "the last words" in str(failure.value) and "@phase" not in str(failure.value)
    assert gone(pids)


def test_a_client_that_takes_too_long_is_ended_and_what_it_was_at_is_told(tmp_path: Path) -> None:
    client, pids = command(tmp_path, "time.sleep(600)")

    def until_written(_phase: str, _seconds: float) -> None:
        while not pids.exists():
            time.sleep(0.01)

    with pytest.raises(LabError, match=r"within 0\.2 s and got none; it was importing the world") as failure:
        answer_of(client, {}, "it", watch=until_written, timeout_s=0.2)
    assert "--timeout" in str(failure.value) and "the last words" in str(failure.value)
    assert gone(pids)


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    client, pids = command(tmp_path, "time.sleep(600)")

    def interrupt(_phase: str, _seconds: float) -> None:
        if pids.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        answer_of(client, {}, "it", watch=interrupt, timeout_s=60)
    assert gone(pids)


def test_a_parent_that_is_killed_takes_its_client_with_it(tmp_path: Path) -> None:
    then = "sys.path.insert(0, '.')\nfrom benchmarks.client_peers import _end_with_parent\n_end_with_parent()"
    client, pids = command(tmp_path, then)
    program = (
        "import sys; from benchmarks.client_process import answer_of\n"
        f"answer_of({client!r}, {{}}, 'it', watch=lambda *_: None, timeout_s=60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    while not pids.exists() and parent.poll() is None:
        time.sleep(0.02)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert gone(pids)


def test_a_clients_process_asks_nobody_and_takes_no_setting_from_outside() -> None:
    inherited = {"PATH": "/bin", "HTTPS_PROXY": "http://p", "no_proxy": "x", "GUIDELLM__MAX_CONCURRENCY": "1"}
    found = environment({**inherited, "HF_HUB_OFFLINE": "0"})
    assert found["PATH"] == "/bin"
    assert (found["HF_HUB_OFFLINE"], found["DO_NOT_TRACK"]) == ("1", "1")
    assert not {"HTTPS_PROXY", "no_proxy", "GUIDELLM__MAX_CONCURRENCY"} & found.keys()


def test_without_a_terminal_each_phase_is_a_line_and_a_long_one_is_told_again() -> None:
    shown = io.StringIO()
    with Clock(Console(file=shown, width=200)) as clock:
        watch = clock.watch("3 of 48: guidellm")
        for phase, seconds in (("importing", 0), ("importing", 5), ("importing", 65), ("sending [16]", 70)):
            watch(phase, seconds)
    assert shown.getvalue().splitlines() == [
        "3 of 48: guidellm: importing, 0:00",
        "3 of 48: guidellm: importing, 1:05",
        "3 of 48: guidellm: sending [16], 1:10",
    ]


def test_a_terminal_has_one_running_line() -> None:
    shown = io.StringIO()
    with Clock(Console(file=shown, width=200, force_terminal=True)) as clock:
        clock.watch("ours")("importing", 3)
    assert "ours: importing, 0:03" in shown.getvalue()
