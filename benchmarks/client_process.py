"""One client in a process of its own, seen from outside: what it is at, how long it may take, that nothing is left.

A client that is not ours imports half a gigabyte of packages before its first request, and on a busy machine that
takes minutes. So its phase shows while it works, it has a time limit, and its answer is one line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from pydantic import BaseModel, JsonValue, ValidationError
from rich.console import Console
from rich.status import Status

from benchmarks.client_peers import PHASE, WITH_PARENT, Reported
from serving.errors import LabError

TIMEOUT_S: Final = 900.0
"""Of one side: three loads and the imports, on a machine that has other work too."""
BEAT_S: Final = 30.0
"""Where no terminal shows a running clock, a line tells this often that the work goes on."""

_ROOT = Path(__file__).parents[1]
_TAIL_LINES = 12
_GRACE_S = 3.0

Watch = Callable[[str, float], None]
"""Called about once a second with the phase and the seconds since the start."""


class Told(BaseModel):
    """What a client's process writes."""

    reported: Reported
    logs: list[dict[str, JsonValue]] | None
    """What a stub server saw of the measured load; None at another server."""
    cpu_s_per_1000: float | None


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """What a client's process sees: nobody is asked but the server, and no setting of the person's changes the load.

    The tokenizer is a folder here; proxies are taken out because our client knows none; `GUIDELLM__` is the
    beginning of settings that would overwrite the load itself.
    """
    quiet = {
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    kept = {
        name: value
        for name, value in inherited.items()
        if not name.startswith("GUIDELLM__") and not name.lower().endswith("_proxy")
    }
    return {**kept, **quiet}


def told_by(
    client: str,
    job: Mapping[str, JsonValue],
    python: str = sys.executable,
    *,
    watch: Watch,
    timeout_s: float = TIMEOUT_S,
) -> Told:
    """What `client` says of a job, from a process of its own that `python` runs.

    Raises: LabError where it fails or takes longer than `timeout_s`, with the last that it wrote.
    """
    command = [python, "-m", "benchmarks.client_peers", client, WITH_PARENT]
    answer = answer_of(command, job, client, watch=watch, timeout_s=timeout_s)
    try:
        return Told.model_validate_json(answer)
    except ValidationError as error:
        raise LabError(f"Expected {client}'s report as JSON, got {answer[:200]!r}.") from error


def answer_of(
    command: Sequence[str], job: Mapping[str, JsonValue], name: str, *, watch: Watch, timeout_s: float
) -> str:
    """What a command writes that reads one line of JSON; whatever happens, none of its processes is left."""
    begin = time.monotonic()
    with _group(command) as process:
        heard = _Heard(process)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died; why stands in what it wrote
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
        while process.poll() is None:
            watch(heard.phase, passed := time.monotonic() - begin)
            if passed > timeout_s:
                _end(process)
                heard.answer()  # all that it wrote has been read then
                raise LabError(
                    f"Expected {name}'s answer within {timeout_s:g} s and got none; it was {heard.phase}. Give it "
                    f"more with --timeout, or the machine to itself. The last that it wrote:\n{heard.tail()}"
                )
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=min(1.0, timeout_s))
        _end(process)  # workers that outlived it hold the pipes open
        answer = heard.answer()
    if process.returncode:
        raise LabError(
            f"{name} failed with exit code {process.returncode} while {heard.phase}. The last that it wrote:\n"
            f"{heard.tail()}"
        )
    return answer


class Clock:
    """Shows what is being waited for: a running line on a terminal, elsewhere a line a phase and one every `BEAT_S`."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self._status: Status | None = None
        self._shown: tuple[str, float] = ("", 0.0)

    def __enter__(self) -> Clock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def watch(self, what: str) -> Watch:
        """The function that `told_by` calls; `what` names the client, the case and its place in the whole."""
        self._shown = ("", 0.0)

        def show(phase: str, seconds: float) -> None:
            line = f"{what}: {phase}, {int(seconds) // 60}:{int(seconds) % 60:02d}"
            if self._console.is_terminal:
                if self._status is None:
                    self._status = self._console.status(line)
                    self._status.start()
                self._status.update(line)
            elif phase != self._shown[0] or seconds - self._shown[1] >= BEAT_S:
                self._shown = (phase, seconds)
                self._console.print(line, markup=False)

        return show

    def stop(self) -> None:
        """Clear the running line, so that results can be printed."""
        if self._status is not None:
            self._status.stop()
            self._status = None


class _Heard:
    """Reads both pipes in threads, so that neither fills; keeps the answer, the phase and the last lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.phase = "starting"
        self._lines: deque[str] = deque(maxlen=_TAIL_LINES)
        self._answer: list[str] = []
        assert process.stdout is not None and process.stderr is not None
        readers = ((process.stdout, self._take_answer), (process.stderr, self._take_line))
        self._threads = [threading.Thread(target=take, args=(pipe,), daemon=True) for pipe, take in readers]
        for thread in self._threads:
            thread.start()

    def answer(self) -> str:
        """All of standard output, after the end of the process."""
        for thread in self._threads:
            thread.join(timeout=_GRACE_S)
        return "".join(self._answer)

    def tail(self) -> str:
        """The last lines of standard error."""
        return "\n".join(self._lines) or "(nothing)"

    def _take_answer(self, pipe: IO[str]) -> None:
        with pipe:
            self._answer.extend(pipe)

    def _take_line(self, pipe: IO[str]) -> None:
        with pipe:
            for line in pipe:
                if line.startswith(PHASE):
                    self.phase = line.removeprefix(PHASE).strip()
                elif line.strip():
                    self._lines.append(line.rstrip())


@contextlib.contextmanager
def _group(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that leads a group of its own; at the end nothing of the group is left, however it comes.

    Ctrl-C at the terminal reaches this process alone, which then ends the group.
    """
    process = subprocess.Popen(
        command,
        cwd=_ROOT,
        env=environment(os.environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        yield process
    finally:
        _end(process)
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()


def _end(process: subprocess.Popen[str]) -> None:
    """End the group: politely while its leader lives, then by force what is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS says the latter of an ended group
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_GRACE_S)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
