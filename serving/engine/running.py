"""A started engine: its progress while it starts, its health while it serves, and its certain end."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self
from uuid import uuid4

import httpx

from serving.engine import supervisor
from serving.engine.config import EngineCommand
from serving.engine.plan import API_KEY_VARIABLE
from serving.engine.rootcause import find_fatal, root_cause
from serving.engine.stages import Stage, furthest_stage
from serving.errors import LabError
from serving.progress import Progress, Silent

INSTANCE_VARIABLE = "CTXLAB_ENGINE_INSTANCE"
"""Marks the engine's processes, so that a leftover could be found by its environment."""

_TICK_S = 0.2
_SETTLE_S = 1.5
_LOG_TAIL_CHARACTERS = 400_000


class RunningEngine:
    """An engine that answers; a context manager that ends it on every way out.

    The engine ends too when this process dies without running any of this (see `supervisor`). `check` between
    requests turns a death in the background into its root cause.
    """

    def __init__(
        self,
        command: EngineCommand,
        process: subprocess.Popen[bytes],
        log_path: Path,
        instance: str,
        grace_s: float,
    ) -> None:
        self.command = command
        self.log_path = log_path
        self.instance = instance
        """The unique second name under which the server lists its model."""
        self._process = process
        self._grace_s = grace_s
        self._log = _LogTail(log_path)
        self._fatal = False
        self._events = _Events(process)

    @property
    def base_url(self) -> str:
        """Where a client reaches the server, without `/v1`."""
        return self.command.base_url

    @property
    def pid(self) -> int | None:
        """The engine's first process; None until it has started."""
        return self._events.engine_pid()

    @property
    def supervisor_pid(self) -> int:
        """The process that ends the engine when this one is gone."""
        return self._process.pid

    def poll(self) -> int | None:
        """The exit code once everything of the engine has ended, else None."""
        return self._process.poll()

    def wait(self, timeout_s: float | None = None) -> int:
        """Block until the engine has ended; its exit code. LabError when `timeout_s` passes first."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise LabError(
                f"The engine was expected to end within {timeout_s:g} s and still runs."
            ) from error

    def check(self) -> None:
        """Raise LabError with the root cause if the engine has died or reported a fatal error.

        Looks at the process and at the new part of the log: cheap enough to call around every request. After
        it raised, nothing of the engine is left.
        """
        if self.poll() is not None:
            raise self._failure(f"The engine ended with exit code {self.poll()}")
        if self._saw_fatal():
            time.sleep(_SETTLE_S)  # the lines that carry the reason may still be on their way
            self.stop()
            raise self._failure("The engine failed")

    def stop(self) -> None:
        """End the engine and everything it started; returns when nothing is left. Safe to call twice."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(self._grace_s + 3 * supervisor.KILL_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its guard sees the pipe close and ends the engine
            self._process.wait()
        self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _await_ready(self, progress: Progress, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        stage: Stage | None = None
        while True:
            fatal = self._saw_fatal()
            reached = furthest_stage(self._log.text)
            if reached is not stage:
                if stage is not None:
                    progress.end()
                if reached is not Stage.READY:
                    progress.begin(reached)
                stage = reached
            if self._process.poll() is not None:
                raise self._failure(
                    f"The engine ended with exit code {self._process.returncode} before it was ready"
                )
            if fatal:
                time.sleep(_SETTLE_S)
                raise self._failure("The engine failed before it was ready")
            if self._answers():
                if stage is not Stage.READY:
                    progress.end()
                return
            if time.monotonic() >= deadline:
                raise LabError(
                    f"The engine was expected to be ready within {timeout_s:g} s and is still at the stage "
                    f'"{stage}": allow it more time, or read {self.log_path}.'
                )
            time.sleep(_TICK_S)

    def _saw_fatal(self) -> bool:
        """Whether a process of the engine has said that it cannot go on; reads only what the log gained."""
        self._fatal = self._fatal or find_fatal(self._log.read()) is not None
        return self._fatal

    def _answers(self) -> bool:
        """Whether OUR server is ready: healthy, and listing the name that only this start knows."""
        key = self.command.secret_env.get(API_KEY_VARIABLE)
        headers = {} if key is None else {"Authorization": f"Bearer {key.get_secret_value()}"}
        try:
            with httpx.Client(
                base_url=self.base_url, timeout=5.0, trust_env=False, headers=headers
            ) as client:
                if client.get("/health").status_code != httpx.codes.OK:
                    return False
                listing = client.get("/v1/models")
                names = _served_names(listing)
        except httpx.TransportError:
            return False  # not listening yet
        if self.instance not in names:
            raise LabError(
                f"Port {self.command.port} is answered by another server (it serves "
                f"{', '.join(names) or 'nothing'}): end that program, or choose another port."
            )
        return True

    def _failure(self, what: str) -> LabError:
        self._log.read()
        cause = root_cause(self._log.text)
        if cause is not None:
            return LabError(f"{what}: {cause.sentence} The full log is {self.log_path}.")
        reason = self._events.reason()
        detail = f"{reason}. " if reason else "the log names no reason. "
        return LabError(f"{what}: {detail}The full log is {self.log_path}.")


def start(
    command: EngineCommand,
    *,
    log_path: Path,
    progress: Progress | None = None,
    timeout_s: float = 600.0,
    grace_s: float = 10.0,
    environ: Mapping[str, str] | None = None,
) -> RunningEngine:
    """Start the engine and return when it answers.

    `timeout_s` bounds the start, `grace_s` what the engine may take to end politely. The engine's output goes
    to `log_path` (made anew). LabError with the root cause when it cannot start; nothing is left then, nor
    after an interrupt.
    """
    instance = f"{command.served_model_name}-{uuid4().hex[:12]}"
    environment = command.full_env(os.environ if environ is None else environ)
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", supervisor.__file__, supervisor.Role.SUPERVISE, str(grace_s)),
                *with_instance_name(command, instance),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**environment, INSTANCE_VARIABLE: instance},
            start_new_session=True,  # Ctrl-C reaches this process only, which then ends the engine
        )
    engine = RunningEngine(command, process, log_path, instance, grace_s)
    try:
        engine._await_ready(progress or Silent(), timeout_s)
    except BaseException:
        engine.stop()
        raise
    return engine


def with_instance_name(command: EngineCommand, instance: str) -> tuple[str, ...]:
    """The arguments with `instance` as a second served name: vLLM answers to both and reports the first."""
    argv = list(command.argv)
    if "--served-model-name" in argv:
        argv.insert(argv.index("--served-model-name") + 2, instance)
    return tuple(argv)


def _served_names(listing: httpx.Response) -> tuple[str, ...]:
    """Names in a `/v1/models` answer; none where the answer has another form."""
    try:
        body = listing.json()
    except json.JSONDecodeError:
        return ()
    data = body.get("data") if isinstance(body, dict) else None
    entries = data if isinstance(data, list) else []
    return tuple(str(entry["id"]) for entry in entries if isinstance(entry, dict) and "id" in entry)


class _LogTail:
    """The log so far, read a piece at a time; the oldest text is let go beyond a bound."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._pieces: deque[str] = deque()
        self._partial = ""

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def read(self) -> str:
        """Take in what was added since; the complete lines among it."""
        with self._path.open("rb") as log:
            log.seek(self._offset)
            piece = log.read()
        self._offset += len(piece)
        added = piece.decode("utf-8", errors="replace")
        if added:
            self._pieces.append(added)
        while len(self._pieces) > 1 and sum(map(len, self._pieces)) > _LOG_TAIL_CHARACTERS:
            self._pieces.popleft()
        lines, newline, self._partial = (self._partial + added).rpartition("\n")
        return lines + newline


class _Events:
    """What the guard has told over its pipe."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdout is None:
            raise ValueError("the supervisor must be started with a pipe as its standard output")
        self._pipe: BinaryIO = process.stdout  # type: ignore[assignment]  # typeshed says IO[bytes]
        os.set_blocking(self._pipe.fileno(), False)
        self._pending = b""
        self._known: dict[str, str | int] = {}

    def engine_pid(self) -> int | None:
        self._read()
        pid = self._known.get("pid")
        return pid if isinstance(pid, int) else None

    def reason(self) -> str | None:
        self._read()
        reason = self._known.get("reason")
        return reason if isinstance(reason, str) else None

    def close(self) -> None:
        self._read()
        self._pipe.close()

    def _read(self) -> None:
        for line in self._lines():
            self._known |= json.loads(line)

    def _lines(self) -> Iterator[bytes]:
        with contextlib.suppress(BlockingIOError, ValueError):  # nothing new; closed after the end
            while piece := os.read(self._pipe.fileno(), 4096):
                self._pending += piece
        *lines, self._pending = self._pending.split(b"\n")
        yield from lines
