from __future__ import annotations

import re
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from experiments.framework.schedule import SALT_LIMIT, by_engine, cache_salt, schedule
from experiments.framework.trials import TrialSpec
from tests.support.toy_study import ARMS, BASE

PLAN = tuple(
    TrialSpec(task=task, seed=seed, repeat=repeat)
    for repeat in (0, 1)
    for task in ("a", "b")
    for seed in range(6)
)


@given(st.integers(0, 2**31))
def test_every_arm_meets_every_spec_once_and_the_index_is_the_place(seed: int) -> None:
    trials = schedule(BASE, ARMS, PLAN, seed)
    assert [trial.order_index for trial in trials] == list(range(len(trials)))
    assert Counter((t.arm.name, t.spec.model_dump_json()) for t in trials) == Counter(
        (arm.name, spec.model_dump_json()) for arm in ARMS for spec in PLAN
    )
    assert len({trial.id for trial in trials}) == len(trials)


@given(st.integers(0, 2**31))
def test_an_engine_is_started_once_and_inside_it_paired_arms_are_neighbours(seed: int) -> None:
    groups = by_engine(schedule(BASE, ARMS, PLAN, seed))
    assert sorted(str(engine) for engine, _ in groups) == [
        "{'engine.block_size': 16}",
        "{'engine.block_size': 32}",
    ]
    for _, group in groups:
        width = len({trial.arm.name for trial in group})
        for start in range(0, len(group), width):
            block = group[start : start + width]
            assert len({trial.spec.model_dump_json() for trial in block}) == 1
            assert len({trial.arm.name for trial in block}) == width


def test_the_order_of_arms_changes_from_spec_to_spec_and_with_the_seed() -> None:
    def orders(seed: int) -> list[tuple[str, ...]]:
        group = max((g for _, g in by_engine(schedule(BASE, ARMS, PLAN, seed))), key=len)
        return [tuple(t.arm.name for t in group[i : i + 3]) for i in range(0, len(group), 3)]

    assert orders(1) == orders(1)
    assert orders(1) != orders(2)
    assert len(set(orders(1))) > 3
    firsts = Counter(order[0] for seed in range(40) for order in orders(seed))
    # 960 blocks of three arms: 320 each if fair; five standard deviations are 73.
    assert all(abs(count - 320) < 73 for count in firsts.values()), firsts


ANY = st.text("ab/@\\\0-. é\ud800", max_size=200)
TRIPLES = st.tuples(ANY, ANY, st.integers(1, 99))


@given(TRIPLES)
def test_a_salt_is_legal_whatever_the_names(triple: tuple[str, str, int]) -> None:
    salt = cache_salt(*triple)
    assert 0 < len(salt) <= SALT_LIMIT
    assert re.fullmatch(r"[A-Za-z0-9._-]+", salt)


@given(st.lists(TRIPLES, unique=True, min_size=2, max_size=8))
def test_different_attempts_have_different_salts(triples: list[tuple[str, str, int]]) -> None:
    assert len({cache_salt(*triple) for triple in triples}) == len(triples)


def test_names_that_differ_only_in_illegal_characters_keep_different_salts() -> None:
    assert cache_salt("r", "a/b", 1) != cache_salt("r", "a@b", 1) != cache_salt("r", "a-b", 1)
