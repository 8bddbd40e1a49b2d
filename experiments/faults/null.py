"""The null fault: the same bytes, built again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.faults.base import FaultContext
from serving.assembler import Draft, DraftMessage, DraftTool, Invariant, Message, ToolSpec


@dataclass(frozen=True, slots=True)
class Null:
    """Breaks nothing: every message and tool goes through JSON and comes back. What it costs is noise."""

    name: str = "null"
    breaks: frozenset[Invariant] = frozenset()

    @classmethod
    def build(cls, _context: FaultContext) -> Null:
        """The fault for one call."""
        return cls()

    def apply(self, draft: Draft) -> Draft:
        """An equal draft that shares no object with the old one."""
        return replace(
            draft,
            messages=tuple(
                DraftMessage(
                    Message.model_validate_json(message.message.model_dump_json()),
                    message.spans,
                    message.region,
                )
                for message in draft.messages
            ),
            tools=tuple(
                DraftTool(ToolSpec.model_validate_json(tool.spec.model_dump_json()), tool.item_id)
                for tool in draft.tools
            ),
        )
