from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.framework.arms import NULL_REBUILD
from experiments.framework.statistics import judged_alike
from experiments.framework.trials import Measure
from experiments.status_bar.techniques_contrasts import (
    INTERACTIONS,
    MAIN,
    contrasts,
    incomplete,
)
from experiments.status_bar.techniques_design import NONE, sign
from serving.assembler.status_bar import Technique
from tests.support.technique_records import records

TODO, ERRORS = Technique.TODO, Technique.ERRORS
TERMS = [term for size in (1, 2) for term in combinations(Technique, size)]


@settings(max_examples=8)
@given(st.lists(st.integers(-5, 5), min_size=15, max_size=15), st.integers(-9, 9))
def test_every_effect_of_one_and_of_two_is_found_beside_all_the_others(sizes: list[int], level: int) -> None:
    def rule(on: frozenset[Technique], task: int) -> dict[str, Measure]:
        total = sum(size / 2 * sign(term, on) for term, size in zip(TERMS, sizes, strict=True))
        return {"iterations": level + task + total}

    made = records(rule, tasks=2)
    found = {**contrasts(made, "iterations", MAIN), **contrasts(made, "iterations", INTERACTIONS)}
    assert [found[term].effect.estimate for term in TERMS] == pytest.approx(sizes)


def test_a_technique_that_always_helps_is_found_and_the_others_are_not() -> None:
    found = contrasts(records(lambda on, task: {"success": TODO in on}), "success", MAIN)
    assert found[(TODO,)].effect.estimate == 1
    assert [term for term, one in found.items() if one.found] == [(TODO,)]
    assert found[(TODO,)].p_value == pytest.approx(2 / 2**8)
    assert found[(TODO,)].adjusted == pytest.approx(5 * 2 / 2**8)


def test_an_interaction_is_no_main_effect() -> None:
    made = records(lambda on, task: {"success": (TODO in on) == (ERRORS in on)})
    assert contrasts(made, "success", INTERACTIONS)[(TODO, ERRORS)].effect.estimate == 1
    assert all(one.effect.estimate == 0 for one in contrasts(made, "success", MAIN).values())


def test_what_holds_for_one_task_alone_is_within_its_bounds_not_beyond_chance() -> None:
    found = contrasts(records(lambda on, task: {"success": task == 0 and TODO in on}), "success", MAIN)
    one = found[(TODO,)]
    assert one.effect.estimate == pytest.approx(1 / 8)
    assert one.effect.low == 0
    assert not one.found
    assert one.detectable is not None
    assert one.detectable > one.effect.estimate


def test_nothing_that_varies_detects_nothing_rather_than_everything() -> None:
    found = contrasts(records(lambda on, task: {}), "success", MAIN)
    assert {(one.effect.estimate, one.p_value, one.detectable) for one in found.values()} == {(0, 1, None)}


def test_few_tasks_have_an_estimate_without_bounds() -> None:
    one = contrasts(records(lambda on, task: {"success": TODO in on}, tasks=4), "success", MAIN)[(TODO,)]
    assert (one.effect.estimate, one.effect.low, one.effect.high, one.found) == (1, None, None, False)


def test_a_task_that_one_run_lacks_is_left_out_and_counted() -> None:
    made = records(lambda on, task: {"success": TODO in on}, tasks=6)
    lacking = [one for one in made if not (one.arm == "todo-errors" and one.spec.cluster == "phone-0#0")]
    assert contrasts(lacking, "success", MAIN)[(TODO,)].clusters == 5
    assert incomplete(lacking, "success") == 1
    assert incomplete(made, "success") == 0


def test_a_measure_without_meaning_for_a_task_leaves_that_task_out() -> None:
    made = records(lambda on, task: {"violations": None if task % 2 else int(TODO not in on)})
    one = contrasts(made, "violations", MAIN)[(TODO,)]
    assert (one.clusters, one.effect.estimate, one.effect.low) == (4, -1, None)


def test_the_null_arm_is_no_run_of_the_fraction() -> None:
    made = records(lambda on, task: {"success": TODO in on})
    turned = [
        one.model_copy(update={"measures": {**one.measures, "success": True}})
        if one.arm == NULL_REBUILD
        else one
        for one in made
    ]
    assert contrasts(turned, "success", MAIN) == contrasts(made, "success", MAIN)
    assert judged_alike(made, NONE, NULL_REBUILD) == (8, 8)
    assert judged_alike(turned, NONE, NULL_REBUILD) == (0, 8)


def test_one_arm_alone_has_no_effect_at_all() -> None:
    made = [one for one in records(lambda on, task: {}) if one.arm == "none"]
    assert contrasts(made, "success", MAIN) == {}
