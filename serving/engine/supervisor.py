"""Ends an engine, and everything the engine started, when the process that wanted it is gone.

Run as a program, with the standard library only: `python -I -S supervisor.py supervise GRACE COMMAND …`. Its
standard input is a pipe whose other end only the parent has. When that pipe closes - the parent left, crashed
or was killed, nothing has to run for it - the engine ends: SIGTERM, GRACE seconds, SIGKILL. `atexit` and
signal handlers of the parent play no part.

The program runs twice, the second started by the first in the role `guard`, each in a session of its own:

    lab ──pipe──► supervisor ──pipe──► guard ──► engine ──► its workers

so that each of the two notices the death of the other, and killing either still ends the engine. Not covered:
SIGKILL to lab, supervisor and guard in the same instant. On Linux the kernel then still ends the engine's
first process, but vLLM 0.32's core process, its child, lives on.

Who belongs to the engine: its process group, and every descendant wherever it moved (own session, own group,
orphaned). Linux tells exactly, because this process is made the reaper of orphaned descendants. On other
systems descendants are remembered from one look at the process table to the next (every second), so a process
that detaches itself twice within one second of its birth could escape there.

Standard output carries events to the parent, one JSON object a line; the engine's own output goes to standard
error, which the parent points at the log file.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import NamedTuple

_TICK_S = 0.2
_TABLE_EVERY_S = 1.0
KILL_S = 10.0
"""How long SIGKILL may take: a process inside a system call dies late."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform == "linux"
NOT_STARTED = 127
"""Exit code when COMMAND could not be started at all, as a shell has it."""


class ProcessEntry(NamedTuple):
    """One row of the process table; `born` tells a process from a later one with the same number."""

    pid: int
    parent: int
    group: int
    born: str


class Member(NamedTuple):
    """A process that belongs to the engine."""

    pid: int
    born: str


def parse_stat(text: str) -> ProcessEntry | None:
    """A row from Linux's `/proc/PID/stat`; None for a process that has ended (a zombie)."""
    head, _, tail = text.rpartition(")")  # the name in parentheses may itself hold spaces and parentheses
    fields = tail.split()
    if len(fields) < 20 or fields[0] in {"Z", "X"}:
        return None
    return ProcessEntry(int(head.split(" ", 1)[0]), int(fields[1]), int(fields[2]), fields[19])


def parse_ps(text: str) -> list[ProcessEntry]:
    """Rows from `ps -A -o pid=,ppid=,pgid=,stat=,lstart=`, without processes that have ended."""
    rows = []
    for line in text.splitlines():
        fields = line.split(None, 4)
        if len(fields) == 5 and not fields[3].startswith("Z"):
            rows.append(ProcessEntry(int(fields[0]), int(fields[1]), int(fields[2]), fields[4].strip()))
    return rows


def find_members(table: list[ProcessEntry], root: int, group: int, known: set[Member]) -> set[Member]:
    """Everything below `root`, everything in `group`, and whatever descends from processes known before."""
    children: dict[int, list[ProcessEntry]] = {}
    for row in table:
        children.setdefault(row.parent, []).append(row)
    alive = {row.pid: row for row in table}
    starts = [alive[member.pid] for member in known if _is_alive(member, alive)]
    starts += [row for row in table if row.group == group]
    starts += children.get(root, [])
    found: dict[int, ProcessEntry] = {}
    while starts:
        row = starts.pop()
        if row.pid not in found and row.pid != root:
            found[row.pid] = row
            starts += children.get(row.pid, [])
    return {Member(row.pid, row.born) for row in found.values()}


class Role(StrEnum):
    """Which of the two this process is."""

    SUPERVISE = "supervise"
    GUARD = "guard"


def main(arguments: list[str]) -> int:
    """Run the command until it ends or the parent's pipe closes; its exit code, as a shell has it."""
    role, grace_s, command = Role(arguments[0]), float(arguments[1]), arguments[2:]
    wish = _Wish()
    parent = os.getppid()
    _become_reaper()
    try:
        child = _start_guard(grace_s, command) if role is Role.SUPERVISE else _start_engine(command)
    except OSError as error:
        _tell(event="failed", reason=f"{command[0]}: {error.strerror}")
        return NOT_STARTED
    if role is Role.GUARD:
        _tell(event="started", pid=child.pid)
    known: set[Member] = set()
    code: int | None = None
    next_look = 0.0
    while code is None and not wish.end and not _parent_gone(parent):
        code = _reap(child.pid)
        if time.monotonic() >= next_look:
            known = find_members(_process_table(), os.getpid(), child.pid, known)
            next_look = time.monotonic() + _TABLE_EVERY_S
    if code is None and child.stdin is not None:
        # The guard sees its pipe close and ends the engine gently; what it leaves is killed below.
        child.stdin.close()
        code, grace_s = _wait_for(child.pid, grace_s + KILL_S), 0.0
    code_at_end = _end_all(child.pid, known, grace_s)
    code = code_at_end if code is None else code
    return code if code >= 0 else 128 - code


def _start_guard(grace_s: float, command: list[str]) -> subprocess.Popen[bytes]:
    """The second pair of eyes: reads this process's pipe, writes to this process's outputs."""
    program = [sys.executable, "-I", "-S", __file__, Role.GUARD, str(grace_s), *command]
    return subprocess.Popen(program, stdin=subprocess.PIPE, start_new_session=True)


def _start_engine(command: list[str]) -> subprocess.Popen[bytes]:
    """The engine, its output joined to the log; on Linux the kernel kills it should the guard die first."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        start_new_session=True,
        preexec_fn=_die_with_parent if _LINUX else None,
    )


class _Wish:
    """Turns every polite signal into a wish to end, seen by the loop."""

    def __init__(self) -> None:
        self.end = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._note)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.end = True


def _parent_gone(parent: int) -> bool:
    """Wait one tick for the parent's pipe to close.

    A copy of the pipe's other end may live on in a process the parent forked, so a changed parent counts too.
    """
    ready, _, _ = select.select([0], [], [], _TICK_S)
    return bool(ready and os.read(0, 4096) == b"") or os.getppid() != parent


def _become_reaper() -> None:
    """On Linux, inherit every orphaned descendant instead of losing it to process 1."""
    if _LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the guard dies: a helper for the first process; the pipes do the work.

    The signal follows the thread that started the child, so only a process of one thread may ask for it.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _reap(pid: int) -> int | None:
    """Collect every ended child, adopted ones too; the exit code of `pid` once it has ended."""
    code = None
    with contextlib.suppress(ChildProcessError):  # no children left to wait for
        while True:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == 0:
                break
            if ended == pid:
                code = os.waitstatus_to_exitcode(status)
    return code


def _wait_for(pid: int, seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        code = _reap(pid)
        if code is not None:
            return code
        time.sleep(_TICK_S / 4)
    return None


def _end_all(pid: int, known: set[Member], grace_s: float) -> int:
    """End every member: SIGTERM, `grace_s`, then SIGKILL until a look at the table finds none."""
    code = None
    begun = time.monotonic()
    told = False
    while time.monotonic() < begun + grace_s + KILL_S:
        ended = _reap(pid)
        code = ended if ended is not None else code
        known = find_members(_process_table(), os.getpid(), pid, known)
        if not known:
            break
        late = time.monotonic() >= begun + grace_s
        if late or not told:
            for member in known:
                # It may have ended since the look at the table.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(member.pid, signal.SIGKILL if late else signal.SIGTERM)
            told = True
        time.sleep(_TICK_S / 4)
    return -signal.SIGKILL if code is None else code


def _is_alive(member: Member, alive: dict[int, ProcessEntry]) -> bool:
    row = alive.get(member.pid)
    return row is not None and row.born == member.born


def _process_table() -> list[ProcessEntry]:
    if not _LINUX:
        done = subprocess.run(
            ["/bin/ps", "-A", "-o", "pid=,ppid=,pgid=,stat=,lstart="],
            capture_output=True,
            text=True,
            check=False,
        )
        return parse_ps(done.stdout)
    rows = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # ended between the listing and the look
                row = parse_stat((folder / "stat").read_text())
                if row is not None:
                    rows.append(row)
    return rows


def _tell(**event: str | int) -> None:
    """One event for the parent; a parent that is gone has nobody to tell."""
    with contextlib.suppress(OSError):
        os.write(1, (json.dumps(event) + "\n").encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
