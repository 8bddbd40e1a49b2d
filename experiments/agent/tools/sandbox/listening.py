"""A supervised run: its first process started, listened to, and ended whatever happens."""

from __future__ import annotations

import contextlib
import io
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

from experiments.agent.tools.sandbox.limits import Ended, Limits, SandboxFailedError, SandboxResult

INTERPRETER: Final = str(Path(sys.executable).resolve())
"""The interpreter behind the one that runs: outside its virtual environment, whose packages are not for models."""
_SETUP_SECONDS: Final = 30.0
"""For the isolation, which takes a tenth of a second on an idle machine, beside the program's own time."""
_END_SECONDS: Final = 30.0
"""For the first process to end the others, which takes it milliseconds."""
_LOOK_EVERY: Final = 0.05
_PIECE: Final = 65_536


def supervised(
    script: str, task: Mapping[str, object], limits: Limits, cancel: threading.Event | None
) -> SandboxResult:
    """Run a script of the lab's that runs one program; it gets `task` as a line of JSON on its standard input.

    The script leaves `{"ended": …}` or `{"failed": …}` on the pipe `status_fd` and ends everything that it started
    when it gets SIGTERM or the lab dies (for Linux: when the thread dies that started it, so this one waits). It
    inherits no environment and no other file. Raises `SandboxFailedError` when nothing ran.
    """
    told, tell = os.pipe()
    with os.fdopen(told, "rb", buffering=0) as status:
        try:
            child = subprocess.Popen(
                [INTERPRETER, "-I", "-S", "-B", script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(tell,),
                env={},
                cwd="/",
                start_new_session=True,
                bufsize=0,
            )
        finally:
            os.close(tell)
        with child:
            listening = _Listening(child, status, limits)
            try:
                whole = {**task, "parent": os.getpid(), "status_fd": tell}
                _hand_over(child, json.dumps(whole).encode() + b"\n")
                listening.listen(cancel)
            finally:
                _end(child)
    return _result(listening, limits)


class _Listening:
    """What a run has said so far, and why the lab ended it, if it did."""

    def __init__(self, child: subprocess.Popen[bytes], status: io.FileIO, limits: Limits) -> None:
        assert child.stdout is not None and child.stderr is not None
        self._limits = limits
        self._streams: tuple[IO[bytes], ...] = (child.stdout, child.stderr, status)
        self.said = tuple(bytearray() for _ in self._streams)
        self.ended: Ended | None = None

    def listen(self, cancel: threading.Event | None) -> None:
        """Read until every process is gone, or there is a reason to end them."""
        deadline = time.monotonic() + _SETUP_SECONDS + self._limits.wall_seconds
        with selectors.DefaultSelector() as selector:
            for number, stream in enumerate(self._streams):
                selector.register(stream, selectors.EVENT_READ, number)
            while self.ended is None and selector.get_map():
                for key, _ in selector.select(_LOOK_EVERY):
                    piece = os.read(key.fd, _PIECE)
                    if not piece:
                        selector.unregister(key.fileobj)
                        continue
                    self.said[key.data].extend(piece)
                    if len(self.said[key.data]) > self._limits.output_bytes:
                        self.ended = Ended.OUTPUT
                if cancel is not None and cancel.is_set():
                    self.ended = Ended.CANCELLED
                elif time.monotonic() > deadline:
                    self.ended = Ended.WALL_TIME


def _hand_over(child: subprocess.Popen[bytes], task: bytes) -> None:
    assert child.stdin is not None
    # A child that failed has said why on its status pipe, and reads no more.
    with contextlib.suppress(BrokenPipeError):
        while task:
            task = task[os.write(child.stdin.fileno(), task) :]


def _end(child: subprocess.Popen[bytes]) -> None:
    """End what still runs: the first process ends the second, and with it the kernel ends all others."""
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _result(listening: _Listening, limits: Limits) -> SandboxResult:
    stdout, stderr, status = (bytes(said) for said in listening.said)
    told = json.loads(status) if status else {}
    if listening.ended is None and "ended" not in told:
        raise SandboxFailedError(told.get("failed") or _shown(stderr, 1_000) or "its first process died")
    return SandboxResult(
        ended=listening.ended or Ended(told["ended"]),
        exit_status=told.get("exit_status") if listening.ended is None else None,
        signal=told.get("signal"),
        stdout=_shown(stdout, limits.output_bytes),
        stderr=_shown(stderr, limits.output_bytes),
    )


def _shown(output: bytes, limit: int) -> str:
    return output[:limit].decode("utf-8", "replace")
