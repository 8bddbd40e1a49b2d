"""What one turn comes to in numbers: its grade, the forms of its calls, its tokens and times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from experiments.agent.callform import CallForm
from experiments.agent.collected import CollectedTurn
from experiments.framework.trials import Measure, TrialOutcome, total
from experiments.tool_calling.names import NATIVE_ONLY, REFUSED
from experiments.workloads.tool_prompt_grades import (
    MadeCall,
    Message,
    Turn,
    TurnGrade,
    grade_turn,
    invented_numbers,
)
from experiments.workloads.tool_prompts import ToolPrompt
from serving.client import Exchange

CountTokens = Callable[[str], int]
GRADES: Final = tuple(
    f"{view}{name}" for view in ("", NATIVE_ONLY) for name in ("success", "exact", "right_stop")
)
"""What a turn can reach, with all forms of calls read and with the template's own alone."""


def turn_of(collected: CollectedTurn) -> Turn:
    """What the model did, without what the server said of it."""
    # Words that the token limit cut off are no end that the model chose.
    cut = bool(collected.calls) and collected.calls[-1].call.exchange.finish_reason == "length"
    results = {tool.call.id: tool.outcome.text for tool in collected.tools_finished}
    return Turn(
        messages=tuple(
            Message(
                form=call.said.form,
                calls=tuple(
                    MadeCall(
                        name=received.call.name,
                        arguments=received.call.arguments,
                        result=results.get(received.call.id),
                    )
                    for received in call.said.calls
                ),
            )
            for call in collected.calls
            if call.said.form is not CallForm.NONE
        ),
        answer=None if cut else collected.answer,
    )


def measures(
    prompt: ToolPrompt, collected: CollectedTurn, count: CountTokens, *, reasons: bool
) -> dict[str, Measure]:
    """Every measure of a trial by name; `reasons`: whether the model reasons in the API's sense at all."""
    turn = turn_of(collected)
    forms = collected.calls_by_form()
    exchanges = [call.call.exchange for call in collected.calls]
    calling = [call for call in collected.calls if call.said.form is not CallForm.NONE]
    first = collected.calls[0].said.form if collected.calls else CallForm.NONE
    return {
        **_graded(grade_turn(prompt, turn)),
        **{
            f"{NATIVE_ONLY}{name}": value
            for name, value in _graded(grade_turn(prompt, turn.read_natively())).items()
        },
        "first_form": first.value,
        **{f"form_{form}": forms[form] for form in CallForm if form is not CallForm.NONE},
        "model_calls": len(collected.calls),
        "gave_up": None if collected.gave_up is None else collected.gave_up.value,
        "answers_cut": sum(exchange.finish_reason == "length" for exchange in exchanges),
        "invented": len(invented_numbers(prompt, turn)) if prompt.fails else None,
        "reasoning_tokens": sum(count(exchange.reasoning) for exchange in exchanges) if reasons else None,
        "visible_tokens": sum(count(call.said.text) for call in calling),
        "tools_run": len(collected.tools_started),
        "started_early": collected.started_early,
        "side_by_side": collected.side_by_side,
        "ids_equal": collected.ids_equal,
        "prompt_tokens": total(None if e.usage is None else e.usage.prompt_tokens for e in exchanges),
        "output_tokens": total(exchange.output_tokens for exchange in exchanges),
    }


def times(collected: CollectedTurn) -> dict[str, Measure]:
    """The waiting of a turn, in seconds; of use only where trials run one after another."""
    exchanges = [call.call.exchange for call in collected.calls]
    ttft = [exchange.ttft_s for exchange in exchanges]
    latency = total(exchange.latency_s for exchange in exchanges)
    waited, tokens = total(ttft), total(exchange.output_tokens for exchange in exchanges)
    decoded = None if tokens is None else tokens - len(exchanges)
    decoding = None if latency is None or waited is None else latency - waited
    return {
        "first_ttft_s": ttft[0] if ttft else None,
        "ttft_s": waited,
        "latency_s": latency,
        "tokens_per_s": decoded / decoding if decoded and decoding else None,
    }


def refusal(words: str, *exchanges: Exchange, graded: Sequence[str] = GRADES) -> TrialOutcome:
    """A conversation that the template or the server would not take is a finding, and no grade of it is reached."""
    return TrialOutcome(
        exchanges=exchanges,
        succeeded=False,
        measures={REFUSED: words, **dict.fromkeys(graded, False)},
        outcome=f"refused: {words}",
    )


def _graded(grade: TurnGrade) -> Mapping[str, Measure]:
    return {
        "success": grade.succeeded,
        "exact": grade.exact,
        "right_stop": grade.right_stop,
        "together": grade.together,
        "expected_calls": grade.expected,
        "calls": grade.made,
        "found": grade.found,
        "wrong_calls": grade.wrong_calls,
    }
