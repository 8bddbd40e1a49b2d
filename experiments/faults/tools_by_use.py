"""The tools in the order of their use, the most used first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from experiments.faults.base import FaultContext
from serving.assembler import Draft, Invariant


@dataclass(frozen=True, slots=True)
class ToolsByUse:
    """The list changes whenever one tool overtakes another: often at first, seldom later, always near the head."""

    name: str = "tools-by-use"
    breaks: frozenset[Invariant] = frozenset({Invariant.TOOLS_FIXED, Invariant.STATIC_HEAD})

    @classmethod
    def build(cls, _context: FaultContext) -> ToolsByUse:
        """The fault for one call; the order follows from the calls in the draft."""
        return cls()

    def apply(self, draft: Draft) -> Draft:
        """The draft with its tools by falling use; tools used equally often keep their order."""
        used = Counter(call.name for message in draft.messages for call in message.message.tool_calls)
        return replace(draft, tools=tuple(sorted(draft.tools, key=lambda tool: -used[tool.spec.name])))
