from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jinja2 import Environment

from serving.chat.content_format import ContentFormat, detect_content_format
from serving.chat.dialect import DialectName, TemplateTraits, dialect_named
from serving.chat.template import ChatTemplate
from serving.errors import UsageError

Generator = Callable[[random.Random], tuple[list[dict[str, Any]], list[dict[str, Any]]]]
TEMPLATES = sorted((Path(__file__).parent / "templates").glob("*.jinja"))
STRING = TemplateTraits(ContentFormat.STRING, has_developer_role=False)
PARTS = TemplateTraits(ContentFormat.PARTS, has_developer_role=True)

LOOPING_MACRO = "{% macro r(c) %}{% for p in c %}{% endfor %}{% endmacro %}"


def vllm(messages: list[dict[str, Any]], tools: Any = (), traits: TemplateTraits = STRING) -> Any:
    return dialect_named("vllm-0.32").conversation(messages, list(tools), traits)


def test_tools_are_dumped_in_field_order_with_null_for_what_is_absent() -> None:
    tool = {"function": {"x": 1, "parameters": {"b": 1, "a": 2}, "name": "f"}, "y": 2, "type": "function"}
    dumped = vllm([{"role": "user", "content": "q"}], [tool]).tools
    assert json.dumps(dumped) == (
        '[{"type": "function", "function": '
        '{"name": "f", "description": null, "parameters": {"b": 1, "a": 2}}}]'
    )


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        ('{"b":1,\n "a": "x"}', {"b": 1, "a": "x"}),
        ("", {}),
        ("{", {}),
        ("[1]", {}),
        ("null", {}),
        ({"a": 1}, {"a": 1}),
    ],
)
def test_arguments_become_an_object_whatever_they_were(arguments: Any, parsed: Any) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    message = vllm([{"role": "assistant", "content": None, "tool_calls": [call]}]).messages[0]
    assert message["tool_calls"][0]["function"]["arguments"] == parsed
    assert list(message["tool_calls"][0]["function"]) == ["arguments", "name"]
    assert message["content"] == ""


def test_reasoning_is_handed_over_under_both_names_and_the_new_name_wins() -> None:
    message = {"role": "assistant", "content": "a", "reasoning": "new", "reasoning_content": "old"}
    given = vllm([message]).messages[0]
    assert (given["reasoning"], given["reasoning_content"]) == ("new", "new")
    del message["reasoning"]
    assert vllm([message]).messages[0]["reasoning_content"] == "old"


def test_a_developer_message_makes_all_system_messages_one_at_the_head() -> None:
    messages = [
        {"role": "user", "content": "u"},
        {"role": "developer", "content": "d"},
        {"role": "system", "content": "s"},
    ]
    assert vllm(messages).messages == [
        {"role": "system", "content": "d\n\ns"},
        {"role": "user", "content": "u"},
    ]


def test_a_late_system_message_stays_where_it_is_when_nobody_is_a_developer() -> None:
    messages = [{"role": "user", "content": "u"}, {"role": "system", "content": "s"}]
    assert [m["role"] for m in vllm(messages).messages] == ["user", "system"]


def test_text_parts_are_joined_for_string_templates_and_kept_for_the_others() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": ""}, {"type": "text", "text": "b"}]
    messages = [{"role": "user", "content": parts}, {"role": "tool", "content": parts, "tool_call_id": "c"}]
    assert [m["content"] for m in vllm(messages).messages] == ["a\nb", "a\nb"]
    assert [m["content"] for m in vllm(messages, traits=PARTS).messages] == [parts, "a\n\nb"]


def test_the_line_that_changes_with_every_request_is_cut_out_of_system_text() -> None:
    text = "x-anthropic-billing-header: cch=1;\nYou are"
    kept = vllm([{"role": role, "content": text} for role in ("system", "user")]).messages
    assert [m["content"] for m in kept] == ["You are", text]


def test_an_image_is_refused() -> None:
    with pytest.raises(UsageError, match="image_url"):
        vllm([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])


def test_template_arguments_that_are_null_or_auto_count_as_not_given() -> None:
    keywords = dialect_named("vllm-0.32").keywords
    given = {"enable_thinking": None, "x": "auto", "y": 1}
    assert keywords(given) == {"y": 1}
    assert dialect_named("plain").keywords(given) == given
    with pytest.raises(UsageError, match="chat_template"):
        keywords({"chat_template": "x"})


def test_an_unknown_dialect_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(UsageError, match=r"vllm-0\.32, plain"):
        dialect_named("vllm-0.1")


def test_the_plain_dialect_changes_nothing() -> None:
    messages = [{"role": "assistant", "content": None, "odd": 1}]
    assert dialect_named(DialectName.PLAIN).conversation(messages, [], STRING).messages == messages


def test_the_body_is_not_changed(wild_conversation: Generator) -> None:
    for seed in range(50):
        messages, tools = wild_conversation(random.Random(seed))
        before = copy.deepcopy((messages, tools))
        vllm(messages, tools)
        vllm(messages, tools, PARTS)
        assert (messages, tools) == before


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "string"),
        ("{% for m in messages[1:] %}{% for p in m['content'] %}{% endfor %}{% endfor %}", "openai"),
        (
            "{% set x = messages %}{% for m in x %}{% for p in m.content|list %}{% endfor %}{% endfor %}",
            "openai",
        ),
        (LOOPING_MACRO + "{% for m in messages %}{{ r(m.content) }}{% endfor %}", "openai"),
        (LOOPING_MACRO + "{% for m in messages %}{{ r(c=m.content) }}{% endfor %}", "openai"),
        (LOOPING_MACRO + "{% for m in messages %}{{ r(m.role) }}{% endfor %}", "string"),
        ("{% for p in content %}{% endfor %}", "openai"),
    ],
)
def test_the_content_format_is_read_from_the_templates_loops(source: str, expected: str) -> None:
    assert detect_content_format(Environment().parse(source)) == expected


@pytest.fixture(scope="module")
def server_code() -> Any:
    """vLLM's own functions between the request and the template, without a server."""
    pytest.importorskip("vllm", reason="the engine is not installed here")
    from vllm.entrypoints.openai.chat_completion import protocol
    from vllm.renderers import chat_utils, hf

    return SimpleNamespace(
        request=protocol.ChatCompletionRequest, parse=chat_utils.parse_chat_messages, hf=hf
    )


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_conversations_equal_those_of_vllms_own_code(
    server_code: Any, wild_conversation: Generator, path: Path
) -> None:
    source = path.read_text(encoding="utf-8")
    detected = server_code.hf._detect_content_format(source, default="string")
    assert detect_content_format(ChatTemplate(source).syntax_tree()) == detected
    config = SimpleNamespace(multimodal_config=None, enable_prompt_embeds=False)
    supported = server_code.hf._detect_developer_role_support(source)
    for seed in range(150):
        messages, tools = wild_conversation(random.Random(seed))
        body = {"model": "m", "messages": messages, **({"tools": tools} if tools else {})}
        request = server_code.request.model_validate_json(json.dumps(body))
        theirs, _, _ = server_code.parse(list(request.messages), config, content_format=detected)
        if not supported and any(message["role"] == "developer" for message in theirs):
            theirs = server_code.hf._convert_developer_to_system(theirs)
            theirs = server_code.hf._consolidate_system_messages(theirs)
        ours = vllm(messages, tools, TemplateTraits(ContentFormat(detected), supported))
        assert json.dumps(ours.messages) == json.dumps(theirs), seed
        dumped = [tool.model_dump() for tool in request.tools] if request.tools else None
        assert json.dumps(ours.tools) == json.dumps(dumped), seed
