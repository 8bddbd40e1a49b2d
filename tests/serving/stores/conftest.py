from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]


def started(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Another Python process that runs `code`, able to import the lab."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )


@pytest.fixture
def kill_after_lines() -> Callable[..., list[str]]:
    """Run `code`, kill it with SIGKILL once it has printed `lines` lines, and return all it printed."""

    def run(code: str, *arguments: str, lines: int, pause: float = 0.0) -> list[str]:
        process = started(code, *arguments)
        assert process.stdout is not None
        seen = [process.stdout.readline().strip() for _ in range(lines)]
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().splitlines()
        assert process.wait() == -signal.SIGKILL
        return [*seen, *rest]

    return run


@pytest.fixture
def run_at_once() -> Callable[..., list[list[str]]]:
    """Run `code` in as many processes as there are argument lists; what each printed, line by line."""

    def run(code: str, *arguments: tuple[str, ...]) -> list[list[str]]:
        processes = [started(code, *given) for given in arguments]
        printed = [process.communicate()[0].splitlines() for process in processes]
        assert [process.returncode for process in processes] == [0] * len(processes)
        return printed

    return run
