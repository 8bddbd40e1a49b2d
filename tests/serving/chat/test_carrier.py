"""The probe picks the carrier that a template gets on with, and proves what the others cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.assembler import (
    AssemblyRequest,
    Carrier,
    ContextItem,
    ContextPolicy,
    Packet,
    RequestContext,
    TaskStateText,
    ToolCall,
    ToolResult,
    ToolStep,
    UserTurn,
    assemble,
    history_items,
)
from serving.chat import ChatRenderer

HIDES_TOOL_RESULTS = (
    "{% for m in messages %}{% if m.role != 'tool' %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endif %}{% endfor %}<|im_start|>assistant\n"
)
REFUSES_TOOL_RESULTS = "{% if messages[-1].role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}x"


def kept(folder: Path, carrier: Carrier) -> int:
    """Characters that a prompt with dynamic text shares with the one without, inside a running tool loop."""
    renderer = ChatRenderer(folder)
    call = ToolCall(id="c1", name="read", arguments="{}")
    history = history_items(
        [
            UserTurn(text="why?"),
            ToolStep(calls=(call,), results=(ToolResult(call_id="c1", content="found"),), reasoning="hm"),
        ]
    )
    state = ContextItem(id="state", payload=TaskStateText(text="step 2"))
    texts = []
    for candidates in ((), (state,)):
        request = AssemblyRequest(
            context=RequestContext(tenant="t1", actor="u1", now="2026-10-02T00:00:00Z"),
            candidates=candidates,
            history=history,
            window=4_000,
            max_output=10,
        )
        packet = assemble(request, ContextPolicy(carrier=carrier), renderer)
        assert isinstance(packet, Packet)
        texts.append(renderer.render_text(packet.messages, packet.tools))
    return next(place for place, (a, b) in enumerate(zip(*texts, strict=False)) if a != b)


def test_with_qwen3_a_user_message_loses_the_running_loop_and_the_probe_takes_another(
    tiny_folders: dict[str, Path],
) -> None:
    folder = tiny_folders["qwen3"]
    assert ChatRenderer(folder).carrier is Carrier.TAIL_OF_LAST_TOOL_RESULT
    assert kept(folder, Carrier.USER) < kept(folder, Carrier.TOOL_RESPONSE)
    assert kept(folder, Carrier.BY_TEMPLATE) == kept(folder, Carrier.TAIL_OF_LAST_TOOL_RESULT)


def test_a_template_that_hides_tool_results_gets_a_message_that_it_shows(
    tiny_folders: dict[str, Path],
) -> None:
    renderer = ChatRenderer(tiny_folders["qwen3"], template_override=HIDES_TOOL_RESULTS)
    assert renderer.carrier is Carrier.TOOL_RESPONSE


@pytest.mark.parametrize("template", [REFUSES_TOOL_RESULTS, "nothing at all"])
def test_a_template_of_which_nothing_can_be_learned_gets_the_first_carrier(
    tiny_folders: dict[str, Path], template: str
) -> None:
    renderer = ChatRenderer(tiny_folders["qwen3"], template_override=template)
    assert renderer.carrier is Carrier.TAIL_OF_LAST_TOOL_RESULT
