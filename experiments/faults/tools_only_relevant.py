"""Only the tools that fit what was said last, as a search over tools gives them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from experiments.faults.base import FaultContext
from serving.assembler import Draft, DraftTool, Invariant, Message, Region

OFFERED: Final = 4
LOOKED_AT: Final = 2
_WORD: Final = re.compile(r"[a-z]{4,}")


@dataclass(frozen=True, slots=True)
class ToolsOnlyRelevant:
    """Saves the tokens of a few tools and loses the prefix behind them in every call that finds other ones.

    The four tools whose names and descriptions share most words with the last two messages, and those that are
    always offered, in their old order.
    """

    always: frozenset[str] = frozenset()
    name: str = "tools-only-relevant"
    breaks: frozenset[Invariant] = frozenset(
        {Invariant.TOOLS_FIXED, Invariant.STATIC_HEAD, Invariant.REQUIRED_PRESENT}
    )

    @classmethod
    def build(cls, context: FaultContext) -> ToolsOnlyRelevant:
        """The fault for one call; the choice follows from the words in the draft."""
        return cls(context.always_offered)

    def apply(self, draft: Draft) -> Draft:
        """The draft with at most `OFFERED` tools beside those that are always offered."""
        trajectory = [message.message for message in draft.messages if message.region is Region.TRAJECTORY]
        wanted = _words(" ".join(_text(message) for message in trajectory[-LOOKED_AT:]))

        def strangeness(tool: DraftTool) -> int:
            spec = tool.spec
            return -len(wanted & _words(f"{spec.name} {spec.description}"))

        kept = [tool for tool in draft.tools if tool.spec.name in self.always]
        kept += sorted((tool for tool in draft.tools if tool not in kept), key=strangeness)[:OFFERED]
        return replace(draft, tools=tuple(tool for tool in draft.tools if tool in kept))


def _text(message: Message) -> str:
    return " ".join(
        [message.content or "", *(f"{call.name} {call.arguments}" for call in message.tool_calls)]
    )


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.replace("_", " ").lower()))
