"""`LinuxSandbox`: the isolation of `linux_child.py`, started, listened to and ended."""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import selectors
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import IO, Final

from experiments.agent.tools.sandbox import linux_child
from experiments.agent.tools.sandbox.limits import (
    Ended,
    Limits,
    NoIsolationError,
    SandboxFailedError,
    SandboxResult,
)
from experiments.agent.tools.sandbox.linux_filter import filter_program

_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/urandom")
_LIBRARIES: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
_ENVIRONMENT: Final = {"HOME": "/scratch", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "TMPDIR": "/scratch"}
_SETUP_SECONDS: Final = 30.0
"""For the isolation, which takes a tenth of a second on an idle machine, beside the program's own time."""
_END_SECONDS: Final = 5.0
_LOOK_EVERY: Final = 0.05
_PIECE: Final = 65_536


class LinuxSandbox:
    """Runs Python programs in isolation; threads may share it, and their runs go on side by side.

    Raises `NoIsolationError` at once where the kernel does not isolate: a program is run to find out.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._task = _task(self.limits)
        try:
            self.run("")
        except SandboxFailedError as error:
            raise NoIsolationError(
                "Expected a kernel that isolates programs (namespaces for users, mounts, processes and the network; "
                f"Landlock, Linux 5.14 or later; seccomp), but {error.refused}: leave the code interpreter out, "
                "or allow this where the machine or its container forbids it."
            ) from error

    def run(self, program: str, cancel: threading.Event | None = None) -> SandboxResult:
        """Run a program of the interpreter's standard library to its end, or to a limit's, or to `cancel`.

        When this returns, no process and no file of it is left. Raises `SandboxFailedError`.
        """
        told, tell = os.pipe()
        with os.fdopen(told, "rb", buffering=0) as status:
            try:
                child = self._child(tell)
            finally:
                os.close(tell)
            task = {**self._task, "parent": os.getpid(), "status_fd": tell, "program": program}
            with child:
                listening = _Listening(child, status, self.limits)
                try:
                    _hand_over(child, json.dumps(task).encode())
                    listening.listen(cancel)
                finally:
                    _end(child)
        return _result(listening, self.limits)

    def _child(self, status_fd: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [_INTERPRETER, "-I", "-S", "-B", linux_child.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(status_fd,),
            env={},
            cwd="/",
            start_new_session=True,
        )


class _Listening:
    """What a run has said so far, and why the lab ended it, if it did."""

    def __init__(self, child: subprocess.Popen[bytes], status: io.FileIO, limits: Limits) -> None:
        assert child.stdout is not None and child.stderr is not None
        self._child = child
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
    with contextlib.suppress(BrokenPipeError), child.stdin:
        child.stdin.write(task)


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


_INTERPRETER: Final = str(Path(sys.executable).resolve())
"""The interpreter behind the one that runs: outside its virtual environment, whose packages are not for models."""


def _task(limits: Limits) -> dict[str, object]:
    """What is the same for every run."""
    wanted = (_INTERPRETER, *_interpreter_folders(), *_LIBRARIES)
    read: list[str] = []
    for path in sorted({os.path.realpath(path) for path in wanted if path and Path(path).exists()}):
        if not any(Path(path).is_relative_to(above) for above in read):
            read.append(path)
    return {
        "read": read,
        "links": [(path, str(Path(path).readlink())) for path in _LIBRARIES if Path(path).is_symlink()],
        "devices": _DEVICES,
        "argv": [_INTERPRETER, "-I", "-S", "-B", "-u", linux_child.PROGRAM],
        "env": _ENVIRONMENT,
        "filter": filter_program(platform.machine()).hex(),
        "limits": asdict(limits),
    }


def _interpreter_folders() -> tuple[str | None, ...]:
    """The standard library, its compiled part, and where a shared interpreter lies: not the virtual environment's."""
    prefixes = {"platbase": sys.base_exec_prefix, "installed_platbase": sys.base_exec_prefix}
    compiled = sysconfig.get_path("platstdlib", vars=prefixes)
    return sysconfig.get_path("stdlib"), compiled, sysconfig.get_config_var("LIBDIR")
