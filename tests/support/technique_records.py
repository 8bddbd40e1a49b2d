"""Made-up records of the study `status-bar-techniques`: every run of the fraction on every task, by a rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from experiments.framework import TrialRecord
from experiments.framework.trials import CacheState, CacheTemperature, Measure, OutcomeKind
from experiments.status_bar.techniques_design import ARMS, NULL, arm_name, fraction
from serving.assembler.status_bar import Technique

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
    return TrialRecord(
        study="status-bar-techniques",
        arm=arm,
        factors=next(dict(one.factors) for one in ARMS if one.name == arm),
        task=task,
        seed=seed,
        repeat=0,
        order_index=0,
        attempt=1,
        salt="s",
        session=0,
        environment="e",
        started="2026-01-01T00:00:00Z",
        seconds=1.0,
        kind=OutcomeKind.OK,
        outcome="",
        cache=CacheState(temperature=CacheTemperature.UNPROVEN, proof=""),
        measures={**_PLAIN, **measures},
    )


def records(rule: Rule, tasks: int = 8, kinds: Sequence[str] = ("phone-0", "files-0")) -> list[TrialRecord]:
    """All sixteen runs and the null arm, on `tasks` tasks."""
    made = []
    for number in range(tasks):
        task, seed = kinds[number % len(kinds)], number // len(kinds)
        made += [record(arm_name(on), task, seed, **rule(on, number)) for on in fraction()]
        made.append(record(NULL, task, seed, **rule(frozenset(), number)))
    return made
