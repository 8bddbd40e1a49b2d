from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.prefix import Cause, Predictor
from serving.prefix.history import common_prefix
from serving.prefix.prediction import id_array
from serving.probe.prove.lies import FORMULAS, Case, Lie, fitting_block_sizes, name_lies
from serving.probe.prove.shapes import edge_shapes, pool_shapes


def cases_of(block: int, seed: str, longest: int = 4096) -> list[Case]:
    """What the edge shapes come to on an engine that follows the rule."""
    predictor, draw = Predictor(block), random.Random(seed)
    stored: list[tuple[str, tuple[int, ...]]] = []
    cases: list[Case] = []
    shapes, output = edge_shapes(range(100, 400), block, longest, seed), None
    while True:
        try:
            shape = next(shapes) if output is None else shapes.send(output)
        except StopIteration:
            return cases
        output = tuple(draw.randrange(100, 400) for _ in range(shape.max_tokens))
        assert len(shape.ids) + shape.max_tokens <= longest
        found = predictor.predict_next(shape.ids, shape.salt)
        predictor.record(output)
        shared = max(
            (common_prefix(id_array(k), id_array(shape.ids)) for of, k in stored if of == shape.salt),
            default=0,
        )
        stored.append((shape.salt, (*shape.ids, *output)[:-1]))
        unsalted = found.cached_tokens + found.causes[Cause.SALT]
        before = cases[-1].predicted if cases else None
        cases.append(Case(found.prompt_tokens, found.cached_tokens, shared, unsalted, before))


@pytest.mark.parametrize("block", [8, 16, 24, 32, 128, 528])
def test_the_edge_shapes_leave_one_block_size_and_reach_every_edge(block: int) -> None:
    cases = cases_of(block, f"seed-{block}")
    assert len(cases) == 30
    truth = [case.predicted for case in cases]
    assert fitting_block_sizes(cases, truth, up_to=8 * block) == [block]
    assert any(case.shared == case.prompt and case.prompt % block == 0 for case in cases)
    assert any(case.prompt < block for case in cases)
    assert any(case.unsalted > case.predicted for case in cases)
    assert name_lies(cases, truth, block) == ()


@pytest.mark.parametrize("block", [16, 32, 128])
@pytest.mark.parametrize(
    ("lie", "variant"),
    [(lie, variant) for lie, formulas in FORMULAS.items() for variant in range(len(formulas))],
)
def test_every_lie_is_told_from_the_truth_and_from_every_other_lie(
    lie: Lie, variant: int, block: int
) -> None:
    cases = cases_of(block, f"lie-{block}")
    reported = [FORMULAS[lie][variant](case, block) or 0 for case in cases]
    assert [named.lie for named in name_lies(cases, reported, block)] == [lie]


@settings(max_examples=40)
@given(
    seed=st.text(min_size=1, max_size=8),
    block=st.sampled_from([16, 32]),
    other=st.sampled_from([8, 24, 48, 64]),
)
def test_another_block_size_is_named_whatever_the_random_shapes(seed: str, block: int, other: int) -> None:
    cases = cases_of(block, seed)
    reported = [min(case.shared, case.prompt - 1) // other * other for case in cases]
    [named] = name_lies(cases, reported, block)
    assert named.lie is Lie.OTHER_BLOCK_SIZE
    assert f"blocks of {other} tokens, and it tells {block}" in named.sentence


@settings(max_examples=40)
@given(at=st.integers(0, 29), by=st.integers(-64, 64).filter(bool))
def test_one_number_that_is_off_is_never_taken_for_the_truth(at: int, by: int) -> None:
    cases = cases_of(16, "one")
    reported = [case.predicted + (by if number == at else 0) for number, case in enumerate(cases)]
    assert reported != [case.predicted for case in cases]
    assert name_lies(cases, reported, 16) == ()


@pytest.mark.parametrize("block", [16, 128])
@pytest.mark.parametrize("num_blocks", [12, 48, 49, 50, 51, 200])
@pytest.mark.parametrize("used_before", [0, 7])
def test_the_pool_shapes_tell_a_pool_from_one_with_a_block_more_or_fewer(
    block: int, num_blocks: int, used_before: int
) -> None:
    def hits(blocks: int) -> list[int]:
        predictor = Predictor(block, blocks)
        for number in range(used_before):
            predictor.predict_next(tuple(range(number, number + 3 * block)), "before")
            predictor.record((1,))
        shapes, found = pool_shapes(range(100, 400), block, num_blocks, 2048, "pool"), []
        output: tuple[int, ...] | None = None
        while True:
            try:
                shape = next(shapes) if output is None else shapes.send(output)
            except StopIteration:
                return found
            found.append(predictor.predict_next(shape.ids, shape.salt).cached_tokens)
            output = (1,)
            predictor.record(output)

    assert hits(num_blocks) != hits(num_blocks - 1)
    assert hits(num_blocks) != hits(num_blocks + 1)
