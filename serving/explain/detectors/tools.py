"""The tool list: another order, another set, another definition."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import JsonValue

from serving.explain.causes import MissCause
from serving.explain.detectors.finding import Finding
from serving.explain.difference import Difference
from serving.explain.turn import JsonObject

_ALL_FROM_THE_START = (
    "Send all tools from the first request on, and say in the newest message which may be used: the conversation "
    "stands behind the list, so a tool at its end moves all of it."
)
_FIXED_KEYS = "Print the schema of a tool from one source with one order of keys."


def tool_order(difference: Difference) -> Finding | None:
    """The same tools with the same definitions, in another order."""
    was, now = difference.stored.tools, difference.sent.tools
    if not difference.in_tools or difference.same_tools or _sorted(was) != _sorted(now):
        return None
    return Finding(
        MissCause.TOOL_ORDER,
        f"The same {len(now)} tools in another order: {_names(was)} became {_names(now)}.",
    )


def tool_set(difference: Difference) -> Finding | None:
    """Tools came or went."""
    was, now = _all_names(difference.stored.tools), _all_names(difference.sent.tools)
    in_tools = difference.in_tools or bool(was) != bool(now)
    if not in_tools or sorted(was) == sorted(now):
        return None
    added = [name for name in now if name not in was]
    removed = [name for name in was if name not in now]
    parts = [f"added {', '.join(added)}"] if added else []
    parts += [f"removed {', '.join(removed)}"] if removed else []
    appended = bool(was) and now[: len(was)] == was
    return Finding(
        MissCause.TOOL_SET,
        f"The tools are not the same: {'; '.join(parts) or 'one is there twice'}"
        f"{' at the end of the list' if appended else ''}.",
        change=_ALL_FROM_THE_START if appended else "",
    )


def tool_definitions(difference: Difference) -> Finding | None:
    """The same names in the same order, another definition – or the same one printed otherwise."""
    if not difference.in_tools:
        return None
    was, now = difference.stored.tools, difference.sent.tools
    if _printed(list(was)) == _printed(list(now)):
        return Finding(
            MissCause.SERVER_TOOLS,
            "Both requests carry the same tools, byte for byte, and the prompts print them otherwise.",
        )
    if difference.same_tools:
        name = difference.broken.sent.tool
        return Finding(
            MissCause.JSON_KEY_ORDER,
            f"The definition of {name or 'a tool'} has the same content with its keys in another order.",
            change=_FIXED_KEYS,
        )
    for old, new in zip(was, now, strict=False):
        if old != new and _name(old) == _name(new):
            place = difference.broken.sent.json_path
            inside = f" at {place}" if place else ""
            return Finding(MissCause.TOOL_DEFINITION, f"The definition of {_name(new)} changed{inside}.")
    return None


def _name(tool: JsonObject) -> str:
    function = tool.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else "?"


def _all_names(tools: Sequence[JsonObject]) -> list[str]:
    return [_name(tool) for tool in tools]


def _names(tools: Sequence[JsonObject], most: int = 4) -> str:
    names = _all_names(tools)
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def _printed(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)


def _sorted(tools: Sequence[JsonObject]) -> list[str]:
    return sorted(json.dumps(tool, sort_keys=True) for tool in tools)
