"""`LinuxSandbox`: the isolation of `linux_child.py` and what is the same for every run of it."""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Final

from experiments.agent.tools.sandbox import linux_child
from experiments.agent.tools.sandbox.limits import (
    Limits,
    NoIsolationError,
    SandboxFailedError,
    SandboxResult,
)
from experiments.agent.tools.sandbox.linux_filter import filter_program
from experiments.agent.tools.sandbox.listening import INTERPRETER, supervised

_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/urandom")
_LIBRARIES: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
_ENVIRONMENT: Final[Mapping[str, str]] = MappingProxyType(
    {"HOME": "/scratch", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "TMPDIR": "/scratch"}
)


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
        return supervised(linux_child.__file__, {**self._task, "program": program}, self.limits, cancel)


def _task(limits: Limits) -> dict[str, object]:
    """What is the same for every run."""
    wanted = (INTERPRETER, *_interpreter_folders(), *_LIBRARIES)
    read: list[str] = []
    for path in sorted({os.path.realpath(path) for path in wanted if path and Path(path).exists()}):
        if not any(Path(path).is_relative_to(above) for above in read):
            read.append(path)
    return {
        "read": read,
        "links": [(path, str(Path(path).readlink())) for path in _LIBRARIES if Path(path).is_symlink()],
        "devices": _DEVICES,
        "argv": [INTERPRETER, "-I", "-S", "-B", "-u", linux_child.PROGRAM],
        "env": dict(_ENVIRONMENT),
        "filter": filter_program(platform.machine()).hex(),
        "limits": asdict(limits),
    }


def _interpreter_folders() -> tuple[str | None, ...]:
    """The standard library, its compiled part, and where a shared interpreter lies: not the virtual environment's."""
    prefixes = {"platbase": sys.base_exec_prefix, "installed_platbase": sys.base_exec_prefix}
    compiled = sysconfig.get_path("platstdlib", vars=prefixes)
    return sysconfig.get_path("stdlib"), compiled, sysconfig.get_config_var("LIBDIR")
