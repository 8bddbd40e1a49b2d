"""`Toolbox`: chosen tools as one thing that the loop can run."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from experiments.agent.tools.outcome import Failure, ToolError, ToolOutcome
from experiments.agent.tools.tool import Tool, failed, shown
from serving.assembler import ToolContract, ToolSpec
from serving.errors import UsageError


class Toolbox:
    """Tools by name; threads may call `run` side by side. Raises `UsageError` when two have one name.

    Nothing that a model passes to `run` raises: what cannot be done is an outcome in words.
    """

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        for added in tools:
            if added.name in self._tools:
                raise UsageError(
                    f"Expected tools with names of their own, got {added.name} twice: leave one out."
                )
            self._tools[added.name] = added

    @property
    def tools(self) -> tuple[Tool, ...]:
        """In the order in which they were given."""
        return tuple(self._tools.values())

    @property
    def contracts(self) -> tuple[ToolContract, ...]:
        """What the application answers for, tool by tool."""
        return tuple(tool.contract for tool in self._tools.values())

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is told, tool by tool."""
        return tuple(contract.spec for contract in self.contracts)

    def run(self, name: str, arguments: str, *, cancel: threading.Event | None = None) -> ToolOutcome:
        """Run one call; `arguments` is the JSON text as the model wrote it.

        A call whose `cancel` is set before it began does nothing; a program that runs is ended by it.
        """
        try:
            if name not in self._tools:
                known = ", ".join(self._tools) or "none"
                raise ToolError(
                    f"There is no tool {name[:80]!r}; the tools are {known}.", Failure.UNKNOWN_TOOL
                )
            if cancel is not None and cancel.is_set():
                raise ToolError(
                    "The call was cancelled before it began, so nothing was done.", Failure.CANCELLED
                )
            reply = self._tools[name].answer(arguments, cancel)
        except ToolError as error:
            return failed(error)
        return ToolOutcome(shown(reply.text), ok=True, verified=reply.verified)
