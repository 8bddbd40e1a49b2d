"""Tools that only read, with the contracts that follow from it."""

from __future__ import annotations

import threading
from typing import Protocol

from experiments.agent.tools import ToolOutcome
from serving.assembler import Authority, ToolContract, ToolSpec


class Reading(Protocol):
    """Tools known by their definitions alone, such as `FileTools`."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]: ...

    def run(self, name: str, arguments: str) -> ToolOutcome: ...


class ReadOnlyTools:
    """`Reading` tools as the loop's `Tools`: each reads, and may be run again."""

    def __init__(self, tools: Reading) -> None:
        self._tools = tools
        self.specs = tools.specs
        self.contracts = tuple(
            ToolContract(spec=spec, authority=Authority.READ, idempotent=True) for spec in tools.specs
        )

    def run(self, name: str, arguments: str, *, cancel: threading.Event | None = None) -> ToolOutcome:
        """Run one call; these are short, so `cancel` is looked at before the start only."""
        if cancel is not None and cancel.is_set():
            return ToolOutcome("The call was cancelled before it began.", ok=False)
        return self._tools.run(name, arguments)
