"""The isolation that this machine has, or the sentence that says what it lacks."""

from __future__ import annotations

import sys
import threading
from typing import Protocol

from experiments.agent.tools.sandbox.limits import Limits, NoIsolationError, SandboxResult


class Sandbox(Protocol):
    """Runs programs that nobody trusts; threads may share it."""

    @property
    def limits(self) -> Limits: ...

    def run(self, program: str, cancel: threading.Event | None = None) -> SandboxResult:
        """Run to the end, a limit or `cancel`; raises `SandboxFailedError` when nothing ran."""
        ...


def isolation(limits: Limits | None = None) -> Sandbox:
    """The sandbox of this operating system, proven by a program that ran; raises `NoIsolationError`."""
    if sys.platform == "linux":
        from experiments.agent.tools.sandbox.linux import LinuxSandbox

        return LinuxSandbox(limits)
    if sys.platform == "darwin":
        from experiments.agent.tools.sandbox.macos import MacSandbox

        return MacSandbox(limits)
    raise NoIsolationError(
        f"Expected Linux or macOS to isolate a program, got {sys.platform}: leave the code interpreter out."
    )
