from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from experiments.framework.arms import NULL_REBUILD, resolve
from experiments.framework.study import check_study
from experiments.status_bar import StatusBarTechniquesStudy
from experiments.status_bar.techniques_design import (
    ARMS,
    HEAD,
    NONE,
    SENTENCES,
    arm_name,
    fraction,
    policy_of,
    sign,
    system_prompt,
    techniques_of,
)
from serving.assembler.status_bar import Technique

STUDY = StatusBarTechniquesStudy("tiny")
FACTORS = {arm.name: resolve(STUDY.base, arm) for arm in ARMS}


def column(*term: Technique) -> np.ndarray:
    return np.array([sign(term, on) for on in fraction()])


def test_the_sixteen_runs_are_none_all_pairs_and_all_fours() -> None:
    assert sorted(len(on) for on in fraction()) == [0, *[2] * 10, *[4] * 5]
    assert len(set(fraction())) == 16


def test_the_defining_relation_is_minus_all_five() -> None:
    assert (column(*Technique) == -1).all()


def test_every_technique_and_every_pair_is_on_in_half_of_the_runs() -> None:
    for size in (1, 2):
        for term in combinations(Technique, size):
            assert column(*term).sum() == 0


def test_no_main_effect_and_no_interaction_of_two_is_mixed_up_with_another() -> None:
    terms = [term for size in (1, 2) for term in combinations(Technique, size)]
    table = np.array([column(*term) for term in terms])
    assert np.array_equal(table @ table.T, 16 * np.eye(len(terms)))


def test_the_first_mixtures_are_those_of_resolution_five() -> None:
    for size, alias in ((1, 4), (2, 3)):
        for term in combinations(Technique, size):
            rest = tuple(technique for technique in Technique if technique not in term)
            assert len(rest) == alias
            assert np.array_equal(column(*term), -column(*rest))


def test_the_study_has_the_sixteen_runs_and_the_null_arm_and_declares_what_differs() -> None:
    assert [arm.name for arm in ARMS] == [*(arm_name(on) for on in fraction()), NULL_REBUILD]
    assert {row.path for row in check_study(STUDY, ARMS).rows} == STUDY.declared
    assert [techniques_of(FACTORS[arm_name(on)]) for on in fraction()] == list(fraction())
    assert techniques_of(FACTORS[NULL_REBUILD]) == techniques_of(FACTORS[NONE]) == frozenset()


def test_a_technique_brings_its_lines_and_its_sentence_and_takes_both_away() -> None:
    for on in fraction():
        prompt, bar = system_prompt(on), policy_of(on).status_bar
        assert prompt.startswith(HEAD)
        assert {technique for technique in Technique if SENTENCES[technique] in prompt} == on
        assert (frozenset() if bar is None else bar.techniques) == on


@pytest.mark.parametrize(("size", "trials"), [("quick", 2), ("reference", 8), ("full", 60)])
def test_a_size_has_its_tasks_and_a_variant_of_every_kind_before_the_next(size: str, trials: int) -> None:
    plan = STUDY.plan(next(one for one in STUDY.sizes if one.name == size))
    assert len(set(plan)) == len(plan) == trials
    kinds = ["phone-0", "files-0", "lost-file-0", "place-0"]
    assert [spec.task for spec in plan[:4]] == kinds[:trials]
