"""Starting the stub server from a test or a benchmark."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Stub:
    base_url: str

    def log(self, request_id: str = "last") -> dict[str, object]:
        """What the stub saw and really sent: `received_ns`, `headers`, `body`, `sends` [(ns, token)]."""
        with urllib.request.urlopen(f"{self.base_url}/_log/{request_id}") as reply:
            return json.load(reply)

    def all_logs(self) -> list[dict[str, object]]:
        """The same of every request since the last call, in order of arrival."""
        with urllib.request.urlopen(f"{self.base_url}/_logs") as reply:
            return json.load(reply)


@contextmanager
def running_stub(persona: str | None = None) -> Iterator[Stub]:
    command = [sys.executable, "-m", "tests.support.stub_server"]
    if persona is not None:
        command += ["--persona", persona]
    with subprocess.Popen(
        command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            port = int(process.stdout.readline())
            yield Stub(f"http://127.0.0.1:{port}")
        finally:
            process.terminate()
