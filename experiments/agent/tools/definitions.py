"""The tools' arguments and, derived from them, what the model is told: short, because every call pays for it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from serving.assembler import ToolSpec

Line = Annotated[int, Field(ge=1)]


class Arguments(BaseModel):
    """Arguments as the model wrote them: nothing is converted, nothing unknown is passed over."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class OnePath(Arguments):
    """A file or folder, relative to the root."""

    path: str


class Directory(Arguments):
    """A folder, relative to the root."""

    path: str = "."


class Lines(Arguments):
    """A file and how many of its lines."""

    path: str
    lines: Line = 10


class ReadFile(Arguments):
    """A file and which of its lines."""

    path: str
    start_line: Line = 1
    max_lines: Line = 200


class FindFiles(Arguments):
    """A glob such as `*.py` or `src/**/test_*.py`."""

    pattern: str


class Grep(Arguments):
    """A pattern (see `pattern.py`) and where to look."""

    pattern: str
    path: str = "."


def tool_spec(name: str, description: str, arguments: type[Arguments]) -> ToolSpec:
    """The schema with names, types, choices and what is required: defaults and limits are told by observations."""
    schema = arguments.model_json_schema()
    properties: dict[str, JsonValue] = {
        field: {key: details[key] for key in ("type", "enum") if key in details}
        for field, details in schema.get("properties", {}).items()
    }
    parameters: dict[str, JsonValue] = {"type": "object", "properties": properties}
    if required := schema.get("required"):
        parameters["required"] = required
    return ToolSpec(name=name, description=description, parameters=parameters)


_TOOLS: Final[tuple[tuple[str, str, type[Arguments]], ...]] = (
    ("read_file", "Read a file.", ReadFile),
    ("find_files", "Find files by glob.", FindFiles),
    ("grep", "Regex search.", Grep),
    ("list_dir", "List a folder.", Directory),
    ("file_info", "Tell kind and size.", OnePath),
    ("count_lines", "Count a file's lines.", OnePath),
    ("head", "First lines.", Lines),
    ("tail", "Last lines.", Lines),
    ("outline", "List a file's classes, functions or headings.", OnePath),
)

TOOL_SPECS: Final[tuple[ToolSpec, ...]] = tuple(tool_spec(*tool) for tool in _TOOLS)
"""Every definition of the folder tools, in the order in which they are declared."""

ARGUMENTS: Final[Mapping[str, type[Arguments]]] = MappingProxyType(
    {name: arguments for name, _, arguments in _TOOLS}
)
