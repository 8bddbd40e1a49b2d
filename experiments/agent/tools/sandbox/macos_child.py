"""Watches one program under `sandbox-exec`: a script of its own, started by `macos.py`. NEVER RUN: see there.

It is the program's parent, ends it at a limit, and ends it too when its standard input closes, which is when the lab
is gone: macOS has no signal for a parent's death.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from typing import Any

_LOOK_EVERY = 0.05


def main() -> None:
    """Read one line of JSON from standard input, run it, and leave the status on its pipe."""
    task = json.loads(sys.stdin.buffer.readline())
    limits = task["limits"]
    program = subprocess.Popen(
        task["argv"],
        env=task["env"],
        cwd=task["cwd"],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: _limit(limits),
    )
    signal.signal(signal.SIGTERM, lambda _number, _frame: program.kill())
    told = _watch(program, limits)
    program.kill()
    program.wait()
    os.write(task["status_fd"], json.dumps(told).encode() + b"\n")


def _limit(limits: dict[str, Any]) -> None:
    for kind, value in (
        (resource.RLIMIT_CPU, limits["cpu_seconds"]),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_FSIZE, limits["scratch_bytes"]),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (value, value))


def _watch(program: subprocess.Popen[bytes], limits: dict[str, Any]) -> dict[str, Any]:
    deadline = time.monotonic() + limits["wall_seconds"]
    while True:
        if (code := program.poll()) is not None:
            if code >= 0:
                return {"ended": "exited", "exit_status": code}
            return {"ended": "cpu_time" if -code == signal.SIGXCPU else "signal", "signal": -code}
        if time.monotonic() > deadline:
            return {"ended": "wall_time"}
        # The kernel does not hold an address space limit here; what `ps` says of the memory is looked at instead.
        if _resident(program.pid) > limits["memory_bytes"]:
            return {"ended": "memory"}
        if select.select([sys.stdin], [], [], _LOOK_EVERY)[0]:
            return {"ended": "cancelled"}


def _resident(pid: int) -> int:
    shown = subprocess.run(["/bin/ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=False)
    return int(shown.stdout.strip() or 0) * 1024


if __name__ == "__main__":
    main()
