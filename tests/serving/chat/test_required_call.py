from __future__ import annotations

import json

import pytest
import xgrammar

from serving.assembler import ToolSpec
from serving.chat.required_call import required_call

SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
    "required": ["path"],
    "additionalProperties": False,
}
TOOLS = (
    ToolSpec(name="read", description="", parameters=SCHEMA),
    ToolSpec(name="end", description="", parameters={}),
)


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


@pytest.mark.parametrize(
    ("said", "strict", "allowed"),
    [
        (call("read", '{"path": "a"}'), True, True),
        (call("read", '{"path": "a", "lines": 3}'), True, True),
        (call("read", '{"path": "a", "more": 3}'), True, False),
        (call("read", '{"path": "a", "more": 3}'), False, True),
        (call("read", '{"lines": "all"}'), True, False),
        (call("write", "{}"), False, False),
        ("I will read it.", False, False),
        (call("read", '{"path": "a"}') + call("end", "{}"), True, False),
    ],
)
def test_the_grammar_takes_one_call_of_an_offered_tool(said: str, strict: bool, allowed: bool) -> None:
    """The engine's own matcher, over single characters as its vocabulary."""
    tag = json.dumps(required_call(TOOLS, single=True, strict=strict))
    assert takes(tag, said) is allowed


def test_more_than_one_call_is_taken_where_they_may_be_parallel() -> None:
    tag = json.dumps(required_call(TOOLS, single=False, strict=True))
    assert takes(tag, call("read", '{"path": "a"}') + call("read", '{"path": "b"}'))


def takes(tag: str, said: str) -> bool:
    vocabulary = [chr(code) for code in range(128)] + ["</s>"]
    info = xgrammar.TokenizerInfo(vocabulary, stop_token_ids=[128])
    compiled = xgrammar.GrammarCompiler(info).compile_structural_tag(tag)
    matcher = xgrammar.GrammarMatcher(compiled)
    return all(matcher.accept_token(ord(letter)) for letter in said) and matcher.accept_token(128)
