"""Made-up records of the study `status-bar-techniques`: every run of the fraction on every task, by a rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from experiments.framework import TrialRecord
from experiments.framework.arms import NULL_REBUILD
from experiments.framework.trials import Measure
from experiments.status_bar.techniques_design import ARMS, arm_name, fraction
from serving.assembler.status_bar import Technique
from tests.support.made_record import made_record

Rule = Callable[[frozenset[Technique], int], dict[str, Measure]]
"""From the techniques that are on and the number of the task to measures."""

_PLAIN: dict[str, Measure] = {
    "success": False,
    "subtasks": 3,
    "subtasks_missed": 3,
    "spoiled": 0,
    "iterations": 4,
    "dialled": 0,
    "violations": None,
    "repeated_calls": 0,
    "errors_met": 0,
    "recovered": None,
    "gave_up": None,
    "form_native": 3,
    "ids_equal": 4,
    "output_tokens": 90,
}


def record(arm: str, task: str, seed: int, **measures: Measure) -> TrialRecord:
    return made_record(
        "status-bar-techniques",
        arm,
        task,
        seed,
        {**_PLAIN, **measures},
        factors=next(dict(one.factors) for one in ARMS if one.name == arm),
    )


def records(rule: Rule, tasks: int = 8, kinds: Sequence[str] = ("phone-0", "files-0")) -> list[TrialRecord]:
    """All sixteen runs and the null arm, on `tasks` tasks."""
    made = []
    for number in range(tasks):
        task, seed = kinds[number % len(kinds)], number // len(kinds)
        made += [record(arm_name(on), task, seed, **rule(on, number)) for on in fraction()]
        made.append(record(NULL_REBUILD, task, seed, **rule(frozenset(), number)))
    return made
