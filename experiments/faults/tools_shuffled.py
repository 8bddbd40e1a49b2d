"""The same tools in another order in every call, as a set iterated anew gives them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from experiments.faults.base import FaultContext
from serving.assembler import Draft, Invariant


@dataclass(frozen=True, slots=True)
class ToolsShuffled:
    """Templates print the tools near the head, so everything from the first moved tool on is computed again."""

    seed: int
    call: int
    name: str = "tools-shuffled"
    breaks: frozenset[Invariant] = frozenset({Invariant.TOOLS_FIXED, Invariant.STATIC_HEAD})

    @classmethod
    def build(cls, context: FaultContext) -> ToolsShuffled:
        """The fault for one call; the order follows from seed and call alone."""
        return cls(context.seed, context.call)

    def apply(self, draft: Draft) -> Draft:
        """The draft with its tools in a seeded random order."""
        tools = list(draft.tools)
        random.Random(f"{self.seed}/{self.call}").shuffle(tools)  # noqa: S311 - an order, not a secret
        return replace(draft, tools=tuple(tools))
