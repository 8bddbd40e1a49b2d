from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from serving.chat.content_format import detect_content_format
from serving.chat.dialect import TemplateTraits, dialect_named
from serving.chat.template import ChatTemplate
from serving.chat.traced import trace
from serving.errors import UsageError

Generator = Callable[[random.Random], tuple[list[dict[str, Any]], list[dict[str, Any]]]]
TEMPLATES = sorted((Path(__file__).parent / "templates").glob("*.jinja"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_text_equals_transformers_with_and_without_origins(path: Path, wild_conversation: Generator) -> None:
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    source = path.read_text(encoding="utf-8")
    template = ChatTemplate(source)
    traits = TemplateTraits(detect_content_format(template.syntax_tree()), "developer" in source)
    rendered = 0
    for seed in range(150):
        messages, tools = wild_conversation(random.Random(seed))
        normalise = dialect_named("vllm-0.32").conversation
        given = normalise(messages, tools, traits)
        common = {"add_generation_prompt": seed % 2 == 0, "bos_token": "<s>", "eos_token": "</s>"}
        try:
            (theirs,), _ = utils.render_jinja_template(
                [given.messages], tools=given.tools, chat_template=source, **common
            )
        except Exception:  # noqa: BLE001 - whatever they raise, we must refuse too
            with pytest.raises(UsageError):
                template.render({"documents": None, **common, **given._asdict()})
            continue
        assert template.render({"documents": None, **common, **given._asdict()}) == theirs, seed
        body: Any = trace({"messages": messages, "tools": tools})
        traced = normalise(body["messages"], body["tools"], traits)
        assert template.render_traced({"documents": None, **common, **traced._asdict()}) == theirs, seed
        rendered += 1
    assert rendered > 75


def test_generation_blocks_loop_controls_and_tojson_work_as_in_transformers() -> None:
    source = (
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
        "{% generation %}{{ m | tojson }}{% endgeneration %}{% endfor %}"
    )
    text = ChatTemplate(source).render({"messages": [{"b": "<ü>", "a": 1}, {}]})
    assert text == '{"b": "<ü>", "a": 1}'


def test_the_clock_is_local_time() -> None:
    before = datetime.now().year
    assert ChatTemplate("{{ strftime_now('%Y') }}").render({}) in {str(before), str(datetime.now().year)}


def test_a_template_with_a_syntax_error_is_refused_with_its_line() -> None:
    with pytest.raises(UsageError, match="line 2"):
        ChatTemplate("a\n{% if %}")


def test_an_unsafe_template_is_refused() -> None:
    with pytest.raises(UsageError, match="unsafe"):
        ChatTemplate("{{ ''.__class__.__mro__ }}").render({})


def test_names_are_what_the_template_reads_from_outside() -> None:
    assert ChatTemplate("{% set a = 1 %}{{ a }}{{ messages }}{{ tools }}").names() == {"messages", "tools"}
