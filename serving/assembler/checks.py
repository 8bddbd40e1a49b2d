"""Whether a request makes sense as a whole; every problem is one sentence that says what to change.

Only items that passed the scope gate are looked at: a message about an item out of scope would tell that it
exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from serving.assembler.items import ContextItem
from serving.assembler.kinds import KIND_RULES, Kind, Region
from serving.assembler.payloads import ToolContract, ToolStep
from serving.errors import UsageError

_NOT_IN_HISTORY: Final = {
    Kind.INSTRUCTION: "rules stand in the one system message",
    Kind.OUTPUT_CONTRACT: "rules stand in the one system message",
    Kind.SKILL_ENTRY: "the skill catalogue stands in the system message",
    Kind.EXAMPLE: "examples stand before the history",
    Kind.MEMORY: "a memory may expire or be deleted, so it is read again for every call",
}


def check_request(
    candidates: Sequence[ContextItem], history: Sequence[ContextItem], tools: Sequence[ContextItem]
) -> None:
    """Raise `UsageError` for a misplaced kind, a repeated id, call or tool name, or circular supersession."""
    for item in candidates:
        region = KIND_RULES[item.kind].region
        if region is Region.TRAJECTORY:
            raise UsageError(
                f"{item.id} is a {item.kind.value} and has a place in time: put it in 'history'."
            )
        if region is Region.TOOLS:
            raise UsageError(f"{item.id} is a tool contract: put it in 'tools', not in 'candidates'.")
    for item in tools:
        if item.kind is not Kind.TOOL_CONTRACT:
            raise UsageError(f"'tools' takes tool contracts, but {item.id} is of kind {item.kind.value}.")
    for item in history:
        if reason := _NOT_IN_HISTORY.get(item.kind):
            raise UsageError(f"'history' takes no {item.kind.value}, such as {item.id}: {reason}.")
    everything = [*candidates, *history, *tools]
    _check_unique("item id", (item.id for item in everything))
    steps = (item.payload for item in history if isinstance(item.payload, ToolStep))
    _check_unique("tool call id", (call.id for step in steps for call in step.calls))
    _check_unique(
        "tool name", (item.payload.spec.name for item in tools if isinstance(item.payload, ToolContract))
    )
    _check_no_cycle(everything)


def _check_unique(what: str, values: Iterable[str]) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise UsageError(
                f"Every {what} is used once in a request, but '{value}' comes twice; remove one."
            )
        seen.add(value)


def _check_no_cycle(items: Sequence[ContextItem]) -> None:
    """Remove items that supersede nothing still standing, again and again; what stays is a cycle."""
    present = {item.id for item in items}
    standing = {item.id: present & set(item.supersedes) for item in items if present & set(item.supersedes)}
    while free := [item_id for item_id, targets in standing.items() if not targets & standing.keys()]:
        for item_id in free:
            del standing[item_id]
    if standing:
        names = ", ".join(sorted(standing))
        raise UsageError(f"Superseding must not go in a circle, but it does among {names}; remove one.")
