"""Results that are kept as they come, so that an interrupted comparison goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import JsonValue

from experiments.framework.journal import Journal, read_lines
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
    """Open `file`, whose first line holds the settings that all its results share.

    Raises: UsageError for a file of other settings, another machine or another revision among them.
    """
    if file is None:
        yield Kept((), None)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    first, *lines = [*read_lines(file)] or [None]
    if first is not None and first != settings:
        raise UsageError(
            f"Expected the results in {file} to be of {json.dumps(settings)}, and they are of {json.dumps(first)}: "
            "choose another --out."
        )
    with Journal(file) as journal:
        if first is None:
            journal.append(settings)
        yield Kept(tuple(lines), journal)
