"""A fake engine to start, and the eyes that see whether anything of it is left."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import psutil

from serving.engine.config import EngineCommand

HERE = Path(__file__).parent
FORKING_PARENT = """
import os, pathlib, sys, time
from serving.engine.config import EngineCommand
from serving.engine.running import start
command = EngineCommand.model_validate_json(sys.argv[1])
engine = start(command, log_path=pathlib.Path(sys.argv[2]), grace_s=1.0)
fork = os.fork()
if fork:
    print(fork, flush=True)
time.sleep(600)
"""
PARENT = """
import pathlib, sys, time
from serving.engine.config import EngineCommand
from serving.engine.running import start
command = EngineCommand.model_validate_json(sys.argv[1])
with start(command, log_path=pathlib.Path(sys.argv[2]), grace_s=1.0):
    print("serving", flush=True)
    time.sleep(600)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


class FakeStage:
    """One fake engine: its command, its marker, and every process that carries the marker."""

    def __init__(self, folder: Path) -> None:
        self.marker = f"fake-{uuid4().hex}"
        self.log_path = folder / "engine.log"
        self.port = free_port()

    def command(self, words: str = "") -> EngineCommand:
        return EngineCommand(
            argv=(
                *(sys.executable, str(HERE / "fake_engine.py"), "--served-model-name", "fake"),
                *("--port", str(self.port), "--marker", self.marker),
            ),
            env={"FAKE_ENGINE": words, "FAKE_MARKER": self.marker},
            host="127.0.0.1",
            port=self.port,
            served_model_name="fake",
        )

    def parent(self, words: str = "", program: str = PARENT) -> subprocess.Popen[str]:
        """A separate process that starts the engine as the lab does and then waits."""
        return subprocess.Popen(
            [sys.executable, "-c", program, self.command(words).model_dump_json(), str(self.log_path)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(HERE.parents[2])},
        )

    def log(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""

    def processes(self, word: str = "") -> list[psutil.Process]:
        """Living processes of this engine: supervisor, guard, engine, workers (`word` narrows them)."""
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            line = " ".join(process.info["cmdline"] or ())
            ours = self.marker in line and "EngineCommand" not in line
            if ours and word in line and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process)
        return found

    def role(self, role: str) -> psutil.Process:
        (process,) = self.processes(f"supervisor.py {role} ")
        return process

    def engine_processes(self) -> list[psutil.Process]:
        return [process for process in self.processes() if "supervisor.py" not in " ".join(process.cmdline())]

    def nothing_left(self) -> bool:
        return wait_until(lambda: not self.processes())
