"""Results that are kept as they come, so that an interrupted comparison goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import JsonValue

from experiments.framework.journal import Journal, read_lines
from experiments.framework.provenance import this_code
from serving.engine.machine import inspect_machine
from serving.errors import UsageError


class Kept:
    """The lines of earlier runs, and a place for more; without a file, kept for this run only."""

    def __init__(self, lines: tuple[JsonValue, ...], journal: Journal | None) -> None:
        self.lines = lines
        self._journal = journal

    def add(self, line: JsonValue) -> None:
        """Keep one more: it is on the disk when this returns."""
        if self._journal is not None:
            self._journal.append(line)


@contextmanager
def kept_in(file: Path | None, settings: dict[str, JsonValue]) -> Iterator[Kept]:
    """Open `file`, whose first line holds what all its results share: `settings`, this machine, the code's revision.

    Raises: UsageError for a file in which one of them is another.
    """
    if file is None:
        yield Kept((), None)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    shared = {**settings, **_made_here()}
    first, *lines = [*read_lines(file)] or [None]
    if first is not None and first != shared:
        raise UsageError(
            f"Expected the results in {file} to be of {json.dumps(shared)}, and they are of {json.dumps(first)}: "
            "choose another --out."
        )
    with Journal(file) as journal:
        if first is None:
            journal.append(shared)
        yield Kept(tuple(lines), journal)


def _made_here() -> dict[str, JsonValue]:
    machine = inspect_machine()
    revision = this_code(Path(__file__).parent).revision
    return {"processor": machine.cpu_name, "cores": len(machine.cores), "revision": revision}
