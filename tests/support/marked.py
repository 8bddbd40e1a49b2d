"""Processes that a test started, found by a mark in their environment, wherever they hang in the tree."""

from __future__ import annotations

import contextlib
from typing import Final

import psutil

_MARK: Final = "CTXLAB_TEST_MARK"


def marking(mark: str) -> dict[str, str]:
    """The variables that every process below inherits; an engine would write its title over them but for the second."""
    return {_MARK: mark, "SPT_NOENV": "1"}


def marked(mark: str) -> list[psutil.Process]:
    """Every process that inherited the mark and still runs."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
