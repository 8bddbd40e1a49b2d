from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from experiments.agent.callform import CallForm, Said
from experiments.agent.events import (
    AgentEvent,
    CallFinished,
    ModelEvent,
    ToolFinished,
    ToolStarted,
    UnmeasuredCall,
)
from experiments.agent.tools import ToolOutcome
from experiments.cli.chat_view import ChatView, call_line, warnings
from serving.assembler import FixedCounter, Rendered, ToolCall, Trajectory, UserTurn, assemble
from serving.assembler.policy import ContextPolicy
from serving.call import MeasuredCall
from serving.chat import ShownToken
from serving.client import ReasoningDelta, TextDelta, ToolCallFragment, Usage
from serving.prefix import PrefixRequest, predict
from tests.support.scripted import CONTEXT, exchange

IDS = tuple(range(1, 41))


def measured(*, served: tuple[int, ...] | None = IDS, cached: int | None = 0) -> MeasuredCall:
    request = Trajectory(turns=(UserTurn(text="hi"),)).request(0, context=CONTEXT, window=99, max_output=9)
    usage = Usage(prompt_tokens=40, completion_tokens=3, cached_tokens=cached)
    return MeasuredCall(
        packet=assemble(request, ContextPolicy(), FixedCounter()),
        rendered=Rendered(IDS, "", ()),
        prediction=predict([PrefixRequest(prompt_ids=IDS)], block_size=16)[0],
        exchange=exchange("hello").model_copy(update={"prompt_token_ids": served, "usage": usage}),
        first_break=None,
    )


def printed(*events: AgentEvent) -> str:
    out = io.StringIO()
    view = ChatView(Console(file=out, soft_wrap=True, highlight=False))
    for event in events:
        view.show(event)
    view.end_line()
    return out.getvalue()


def test_the_line_after_a_call_has_both_sides_and_the_rest() -> None:
    line = call_line(measured(cached=32))
    assert "prompt 40 · cached 32 (server) · predicted 0 · new 8 · output 3" in line


def test_what_is_unknown_is_called_unknown_and_never_0() -> None:
    call = measured(cached=None)
    line = call_line(UnmeasuredCall(call.packet, call.exchange))
    assert "cached unknown (server) · predicted off · new unknown" in line


def test_an_answer_that_was_cut_says_so() -> None:
    call = measured()
    assert "cut" not in call_line(call)
    cut = replace(call, exchange=call.exchange.model_copy(update={"finish_reason": "length"}))
    assert call_line(cut).endswith("cut at --max-tokens")


def test_equal_sides_warn_of_nothing_and_neither_does_silence() -> None:
    assert list(warnings(measured())) == []
    assert list(warnings(measured(served=None, cached=None))) == []


@pytest.mark.parametrize(
    ("served", "at"), [((*IDS[:5], 99, *IDS[6:]), 5), (IDS[:7], 7), ((*IDS, 41), 40), ((), 0)]
)
def test_other_ids_are_a_warning_with_both_sides_and_the_place(served: tuple[int, ...], at: int) -> None:
    (warning,) = warnings(measured(served=served))
    assert f"from token {at} on" in warning
    assert f"40 ids rendered here, {list(IDS[at : at + 6])}" in warning
    assert f"{len(served)} read by the server, {list(served[at : at + 6])}" in warning


def test_other_cached_tokens_are_a_warning_with_both_sides() -> None:
    (warning,) = warnings(measured(cached=16))
    assert "0 predicted, 16 reported" in warning


def test_streams_of_different_kinds_begin_on_lines_of_their_own() -> None:
    text = printed(
        ModelEvent(ReasoningDelta(1, "think", None)),
        ModelEvent(ReasoningDelta(2, "ing", None)),
        ModelEvent(TextDelta(3, "an", None)),
        ModelEvent(TextDelta(4, "swer", None)),
        ModelEvent(ToolCallFragment(5, 0, "id", "grep", "", None)),
        ModelEvent(ToolCallFragment(6, 0, None, None, '{"pattern": "[red]"}', None)),
    )
    assert text == 'thinking\nanswer\n→ grep {"pattern": "[red]"}\n'


def test_what_models_and_tools_say_cannot_reach_the_terminal() -> None:
    call = ToolCall(id="1", name="x\x1b[2J", arguments='{"a": "\x07"}')
    text = printed(
        ModelEvent(TextDelta(1, "\x1b[31mred\r", None)),
        ToolStarted(call, CallForm.NATIVE, "1"),
        ToolFinished(call, ToolOutcome("\x1b]8;;http://evil\x07[/] ", ok=False)),
    )
    assert not set(text) & {"\x1b", "\x07", "\r"}
    assert "\\u001b[31mred\\u000d" in text
    assert "[/]" in text


def test_the_fenced_form_is_said() -> None:
    call = measured()
    assert "code fences" in printed(CallFinished(0, call, Said(CallForm.FENCED, "", None, ())))
    assert "code fences" not in printed(CallFinished(0, call, Said(CallForm.NATIVE, "", None, ())))


def test_a_new_id_is_said_where_the_server_should_have_given_a_good_one() -> None:
    call = ToolCall(id="call-1", name="x", arguments="{}")
    assert "missing or taken" in printed(ToolStarted(call, CallForm.NATIVE, "call-0"))
    assert "missing or taken" not in printed(ToolStarted(call, CallForm.NATIVE, "call-1"))
    assert "missing or taken" not in printed(ToolStarted(call, CallForm.FENCED, None))


def test_a_long_result_is_shown_in_part() -> None:
    call = ToolCall(id="1", name="x", arguments="{}")
    text = printed(ToolFinished(call, ToolOutcome("\n".join(map(str, range(30))), ok=True)))
    assert text.endswith("11\n… 18 more lines\n")


def test_tokens_are_printed_with_their_ids_and_the_known_part_left_out() -> None:
    out = io.StringIO()
    view = ChatView(Console(file=out, soft_wrap=True, highlight=False))
    shown = [ShownToken(7, "<|im_start|>", True), ShownToken(8, "a\n", False), ShownToken(9, "\x1b", False)]
    view.tokens(shown)
    assert out.getvalue() == "3 prompt tokens\n7'<|im_start|>' 8'a\\n' \n9'\\x1b' \n"
    out.truncate(0)
    view.tokens(shown, start=2)
    assert "the first 2 as before" in out.getvalue()
    assert "im_start" not in out.getvalue()
