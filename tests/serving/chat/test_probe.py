from __future__ import annotations

from pathlib import Path

from serving.chat import ReasoningField, probe_template
from serving.chat.content_format import ContentFormat

TEMPLATES = Path(__file__).parent / "templates"


def test_qwen3_renders_tools_and_reads_reasoning_content_only() -> None:
    found = probe_template((TEMPLATES / "qwen3.jinja").read_text(encoding="utf-8"))
    assert (found.renders_tools, found.renders_tool_calls, found.renders_tool_results) == (True, True, True)
    assert found.reasoning_fields == (ReasoningField.REASONING_CONTENT,)
    assert found.thinking_switch and not found.accepts_developer and not found.reads_clock
    assert found.content_format is ContentFormat.STRING


def test_smollm2_drops_a_tool_call_in_silence() -> None:
    found = probe_template((TEMPLATES / "smollm2.jinja").read_text(encoding="utf-8"))
    assert (found.renders_tools, found.renders_tool_calls) == (False, False)
    assert found.reasoning_fields == ()


def test_a_refused_tool_message_is_told_from_a_dropped_one() -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
        "{{ m.content }}{% endfor %}{{ strftime_now('%d') }}"
    )
    found = probe_template(source)
    assert found.renders_tool_results is None and found.renders_tool_calls is None
    assert found.reads_clock
