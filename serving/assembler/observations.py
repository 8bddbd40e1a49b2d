"""Every tool result of a history with its call, under the name that spans and manifests use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from serving.assembler.items import ContextItem
from serving.assembler.messages import ToolCall, part_id
from serving.assembler.payloads import ToolResult, ToolStep


class Returned(NamedTuple):
    """One call that has returned."""

    item_id: str
    call: ToolCall
    result: ToolResult

    @property
    def owner(self) -> str:
        """`part_id(item id, call id)`."""
        return part_id(self.item_id, self.call.id)


def returned(history: Sequence[ContextItem]) -> Iterator[Returned]:
    """All results in log order, those of one step in call order, as the layout sends them."""
    for item in history:
        if isinstance(item.payload, ToolStep):
            results = {result.call_id: result for result in item.payload.results}
            for call in item.payload.calls:
                if call.id in results:
                    yield Returned(item.id, call, results[call.id])
