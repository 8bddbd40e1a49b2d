"""`MacSandbox`: a program under `sandbox-exec`. Written from its documentation and NEVER RUN: there was no Mac.

macOS has no namespaces, so the profile forbids what would need them: another process. One process alone can be
watched and ended from outside. The program's files lie in a folder of the lab's, removed after the run; a lab
that is killed leaves that folder behind, which Linux does not.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Final

from experiments.agent.tools.sandbox import macos_child
from experiments.agent.tools.sandbox.limits import (
    Limits,
    NoIsolationError,
    SandboxFailedError,
    SandboxResult,
)
from experiments.agent.tools.sandbox.listening import INTERPRETER, supervised

SANDBOX_EXEC: Final = "/usr/bin/sandbox-exec"


class MacSandbox:
    """Runs Python programs one process each; threads may share it.

    Raises `NoIsolationError` where `sandbox-exec` is missing or runs nothing.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        if not Path(SANDBOX_EXEC).exists():
            raise NoIsolationError(
                f"Expected {SANDBOX_EXEC} to isolate a program, and it is missing: leave the code interpreter out."
            )
        try:
            self.run("")
        except SandboxFailedError as error:
            raise NoIsolationError(
                f"Expected {SANDBOX_EXEC} to run a program, but {error.refused}: leave the code interpreter out."
            ) from error

    def run(self, program: str, cancel: threading.Event | None = None) -> SandboxResult:
        """Run a program of the standard library to its end, or to a limit's, or to `cancel`."""
        with tempfile.TemporaryDirectory(prefix="ctxlab-sandbox-") as made:
            scratch = Path(made).resolve()
            (scratch / "main.py").write_text(program, encoding="utf-8", errors="surrogatepass")
            task: dict[str, object] = {
                "argv": [
                    SANDBOX_EXEC,
                    "-p",
                    profile(scratch),
                    INTERPRETER,
                    "-I",
                    "-S",
                    "-B",
                    "-u",
                    "main.py",
                ],
                "env": {"HOME": made, "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "TMPDIR": made},
                "cwd": str(scratch),
                "limits": asdict(self.limits),
            }
            return supervised(macos_child.__file__, task, self.limits, cancel)


def profile(scratch: Path) -> str:
    """What the program may do; all else is denied, the network and a second process among it."""
    prefixes = {
        INTERPRETER,
        sys.base_prefix,
        os.path.realpath(sys.base_prefix),
        os.path.realpath(sysconfig.get_path("stdlib")),
        "/usr/lib",
        "/System/Library",
        "/System/Volumes/Preboot/Cryptexes/OS",
        "/private/var/db/dyld",
    }
    readable = "\n".join(f"  (subpath {_quoted(path)})" for path in sorted(prefixes))
    return f"""(version 1)
(deny default)
(deny network*)
(deny process-fork)
(allow process-exec (literal {_quoted(INTERPRETER)}) (subpath {_quoted(os.path.realpath(sys.base_prefix))}))
(allow sysctl-read)
(allow file-read-metadata)
(allow file-read* file-map-executable
{readable})
(allow file-read* (literal "/dev/null") (literal "/dev/zero") (literal "/dev/urandom") (literal "/dev/random"))
(allow file-write-data (literal "/dev/null"))
(allow file-read* file-write* (subpath {_quoted(str(scratch))}))
"""


def _quoted(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
