"""A tool list that grows at its end as tools are discovered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from experiments.faults.base import FaultContext
from serving.assembler import Draft, Invariant

AT_FIRST: Final = 3


@dataclass(frozen=True, slots=True)
class ToolsAppended:
    """Each new tool stands behind all old ones, and yet before the whole conversation, which is computed again.

    Three tools at first and one more in every call, until all are out; from there on nothing changes.
    """

    call: int
    name: str = "tools-appended"
    breaks: frozenset[Invariant] = frozenset(
        {Invariant.TOOLS_FIXED, Invariant.STATIC_HEAD, Invariant.REQUIRED_PRESENT}
    )

    @classmethod
    def build(cls, context: FaultContext) -> ToolsAppended:
        """The fault for one call."""
        return cls(context.call)

    def apply(self, draft: Draft) -> Draft:
        """The draft with the tools discovered so far."""
        return replace(draft, tools=draft.tools[: AT_FIRST + self.call])
