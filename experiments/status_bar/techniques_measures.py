"""What one task that was worked on comes to in numbers."""

from __future__ import annotations

from collections import Counter
from typing import Final

from experiments.agent.callform import CallForm
from experiments.agent.collected import CollectedTurn
from experiments.agent.progress import call_key
from experiments.framework.trials import Measure, total
from experiments.status_bar.techniques_asking import Worked
from experiments.status_bar.techniques_world import CALL

SUCCESS: Final = "success"
MISSED: Final = "subtasks_missed"
ITERATIONS: Final = "iterations"
VIOLATIONS: Final = "violations"

FORMS: Final = tuple(form for form in CallForm if form is not CallForm.NONE)


def measures(worked: Worked) -> dict[str, Measure]:
    """Every measure of a trial by name."""
    turn, found = worked.turn, worked.grade
    exchanges = [call.call.exchange for call in turn.calls]
    forms = turn.calls_by_form()
    errors = sum(not tool.outcome.ok for tool in turn.tools_finished)
    return {
        SUCCESS: found.succeeded,
        "subtasks": found.subtasks,
        MISSED: len(found.missed),
        "missed": ", ".join(found.missed),
        "spoiled": len(found.spoiled),
        ITERATIONS: len(turn.calls),
        "dialled": found.dialled,
        VIOLATIONS: found.violations,
        "repeated_calls": repeated_calls(turn),
        "errors_met": errors,
        # Only who met an error can recover from one.
        "recovered": found.succeeded if errors else None,
        "gave_up": None if turn.gave_up is None else turn.gave_up.value,
        **{f"form_{form}": forms[form] for form in FORMS},
        "empty_messages": turn.empty_messages,
        "answers_cut": sum(exchange.finish_reason == "length" for exchange in exchanges),
        "ids_equal": turn.ids_equal,
        "prompt_tokens": total(None if e.usage is None else e.usage.prompt_tokens for e in exchanges),
        "output_tokens": total(exchange.output_tokens for exchange in exchanges),
    }


def repeated_calls(turn: CollectedTurn) -> int:
    """Calls that were made before with the same arguments; to dial again may be the task, and does not count."""
    made = Counter(call_key(tool.call) for tool in turn.tools_finished if tool.call.name != CALL)
    return sum(count - 1 for count in made.values())
