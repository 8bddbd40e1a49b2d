from __future__ import annotations

from experiments.agent.tools import TOOL_SPECS, FileTools
from serving.assembler.record import canonical_json


def test_at_least_eight_tools_are_told_to_the_model() -> None:
    assert len({spec.name for spec in TOOL_SPECS}) == len(TOOL_SPECS) >= 8
    assert FileTools.specs is TOOL_SPECS


def test_definitions_stay_short() -> None:
    # Qwen's tokenizer makes a token of 3.4 to 3.7 characters of such a definition: 60 tokens, 75 for `read_file`.
    for spec in TOOL_SPECS:
        limit = 265 if spec.name == "read_file" else 222
        assert len(canonical_json(spec.to_api())) <= limit, spec.name


def test_a_schema_tells_types_and_what_is_required() -> None:
    read_file = TOOL_SPECS[0]
    assert read_file.parameters == {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "start_line": {"type": "integer"},
            "max_lines": {"type": "integer"},
        },
        "required": ["path"],
    }
