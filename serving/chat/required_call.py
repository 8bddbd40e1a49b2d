"""The form of an answer that has to be a tool call: a grammar for the server, in the tags of the model's template."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from serving.assembler import ToolSpec

TAG_PARSER: Final = "hermes"
"""The tool parser of the models whose templates write calls so: Qwen2.5 and Qwen3."""


def required_call(tools: Sequence[ToolSpec], *, single: bool, strict: bool) -> dict[str, JsonValue]:
    """The structural tag (xgrammar's) of an answer that is calls of these tools and nothing else.

    `single`: one call, else one or more; `strict`: arguments as each tool's schema has them, else any JSON. Without
    `strict` it is what vLLM itself holds `tool_choice: required` to, where tools do not say `strict`. A model that
    thinks is held to it once it has thought.
    Source: vLLM's `tool_parsers/structural_tag_registry.py`.
    """
    tags: list[JsonValue] = [
        {
            "type": "tag",
            "begin": f'<tool_call>\n{{"name": {json.dumps(tool.name)}, "arguments": ',
            "content": {"type": "json_schema", "json_schema": tool.parameters if strict else True},
            "end": "}\n</tool_call>",
        }
        for tool in tools
    ]
    calls: JsonValue = {
        "type": "tags_with_separator",
        "tags": tags,
        "separator": "",
        "at_least_one": True,
        "stop_after_first": single,
    }
    return {"type": "structural_tag", "format": calls}
