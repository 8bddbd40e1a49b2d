"""Whether a request makes sense as a whole; every problem is one sentence that says what to change.

Only items that passed the scope gate are looked at: a message about an item out of scope would tell that it
exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from serving.assembler.items import ContextItem
from serving.assembler.kinds import KIND_RULES, Kind, Region
from serving.assembler.payloads import SkillBody, ToolContract, ToolStep
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
    _check_loaded_once(history, tools)
    _check_no_cycle(everything)


def _check_loaded_once(history: Sequence[ContextItem], tools: Sequence[ContextItem]) -> None:
    """What is loaded on demand stands in the log once, and never beside the same thing in the head."""
    bodies = [item.payload for item in history if isinstance(item.payload, SkillBody)]
    _check_unique(
        "loaded skill text", (f"{body.name}/{body.file}" if body.file else body.name for body in bodies)
    )
    loaded = [item.payload.spec.name for item in history if isinstance(item.payload, ToolContract)]
    _check_unique("loaded tool", loaded)
    offered = {item.payload.spec.name for item in tools if isinstance(item.payload, ToolContract)}
    if both := sorted(offered & set(loaded)):
        raise UsageError(
            f"A tool is offered from the start or loaded into the history, but '{both[0]}' is both; leave one out."
        )


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
    standing = {item.id: len(present & set(item.supersedes)) for item in items}
    superseded_by: dict[str, list[str]] = {item_id: [] for item_id in present}
    for item in items:
        for target in present & set(item.supersedes):
            superseded_by[target].append(item.id)
    free = [item_id for item_id, targets in standing.items() if not targets]
    while free:
        gone = free.pop()
        del standing[gone]
        for item_id in superseded_by[gone]:
            standing[item_id] -= 1
            if not standing[item_id]:
                free.append(item_id)
    if standing:
        names = ", ".join(sorted(standing))
        raise UsageError(f"Superseding must not go in a circle, but it does among {names}; remove one.")
