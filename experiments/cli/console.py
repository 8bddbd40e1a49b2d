"""What every command shares: where text goes, how long work shows itself, how JSON is printed."""

from __future__ import annotations

import json
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars

from experiments.cli.untrusted import plain
from serving.text import is_hidden

if TYPE_CHECKING:
    from pydantic import JsonValue

OUT = Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else 160)
"""Results: what a pipe should get; a pipe has no width, so tables get room there."""

ERR = Console(stderr=True, soft_wrap=True, highlight=False, emoji=False)
"""Progress, notes and errors: what a person should see even when results are piped."""


def print_json(value: JsonValue, *, indent: bool = True) -> None:
    """One JSON document on standard output, nothing else; without `indent`, on one line.

    Readable letters stay; what a terminal would obey, and what UTF-8 cannot carry, is written as JSON escapes.
    """
    text = json.dumps(value, indent=2 if indent else None, ensure_ascii=False)
    # Hidden characters other than the line breaks stand inside strings only, where an escape means the same.
    safe = "".join(json.dumps(char)[1:-1] if is_hidden(char) and char != "\n" else char for char in text)
    sys.stdout.write(safe + "\n")
    sys.stdout.flush()  # the reader of a pipe may wait for it while this command goes on


class ConsoleProgress:
    """Shows stages as bars on a terminal and as plain lines elsewhere; implements `serving.progress.Progress`.

    Each finished stage leaves one line with its duration, so that a log tells where the time went.
    """

    def __init__(self, console: Console = ERR) -> None:
        self._console = console
        self._bars: Bars | None = None
        self._task: TaskID | None = None
        self._stage: str | None = None
        self._started = 0.0

    def __enter__(self) -> ConsoleProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close("failed" if error else "done")

    def begin(self, stage: str, *, total: float | None = None, unit: str = "") -> None:
        self._close("done")
        self._stage, self._started = stage, time.monotonic()
        if not self._console.is_terminal:
            self._console.print(f"· {plain(stage)} …")
            return
        count = (
            DownloadColumn() if unit == "bytes" else TextColumn("{task.completed:.0f} {task.fields[unit]}")
        )
        self._bars = Bars(
            TextColumn("[cyan]·[/] {task.description}"),
            *((BarColumn(), count, TimeRemainingColumn()) if total else ()),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._bars.add_task(plain(stage), total=total, unit=unit)
        self._bars.start()

    def advance(self, amount: float) -> None:
        if self._bars is not None and self._task is not None:
            self._bars.advance(self._task, amount)

    def note(self, text: str) -> None:
        self._console.print(f"  [dim]{plain(text)}[/]")

    def end(self) -> None:
        self._close("done")

    def _close(self, verdict: str) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
        if self._stage is not None:
            seconds = time.monotonic() - self._started
            mark = "[green]✓[/]" if verdict == "done" else "[red]✗[/]"
            self._console.print(f"{mark} {plain(self._stage)} [dim]{seconds:.1f} s[/]")
            self._stage = None
