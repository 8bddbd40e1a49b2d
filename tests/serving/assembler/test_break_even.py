from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.assembler.break_even import (
    BarMode,
    BreakEvenInputs,
    Choice,
    PromptCost,
    StatusRun,
    advise,
    cheaper_by_simulation,
    simulate_status,
)
from serving.errors import UsageError

RUNS = st.builds(
    StatusRun,
    status_tokens=st.integers(1, 300),
    tokens_between_updates=st.integers(200, 900),
    output_tokens=st.integers(0, 40),
    calls_per_update=st.integers(1, 4),
    head_tokens=st.integers(0, 100),
)
RATIOS = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0])


def inputs(**changed: Any) -> BreakEvenInputs:
    values: dict[str, Any] = {
        "price_ratio": 0.1,
        "status_tokens": 150,
        "tokens_between_updates": 500,
        "recomputed_tokens": 40,
        "updates": 5,
    }
    return BreakEvenInputs(**{**values, **changed})


@pytest.mark.parametrize("case_index", range(5))
def test_the_published_cases_come_out_exactly(worked: dict[str, Any], case_index: int) -> None:
    case = worked["status_break_even_published"]["cases"][case_index]
    advice = advise(
        inputs(
            price_ratio=case["a"],
            status_tokens=case["S"],
            tokens_between_updates=case["R"],
            updates=case["N"],
        )
    )
    published = advice.published
    assert published.choice == case["choice"]
    assert published.replace_cost == case.get("replace", published.replace_cost)
    assert published.append_cost == case.get("append", published.append_cost)
    assert published.updates_at_tie == case.get("N_star", published.updates_at_tie)


@pytest.mark.parametrize("case_index", [0, 1])
def test_the_corrected_cases_come_out_exactly_and_by_simulation(
    worked: dict[str, Any], case_index: int
) -> None:
    case = worked["status_break_even_corrected"]["cases"][case_index]
    run = StatusRun(
        status_tokens=case["S"], tokens_between_updates=500, output_tokens=40, calls_per_update=case["k"]
    )
    first = case["replace_first_cheaper_at_N"]
    advice = advise(run.inputs(first, case["a"]))
    assert advice.inputs.recomputed_tokens == case["Rc"]
    assert advice.corrected.updates_at_tie == case["N_star"]
    assert advice.corrected.replace_first_cheaper_at == first
    assert advice.published.updates_at_tie == 60
    assert (advice.choice, advice.published.choice) == (Choice.REPLACE, Choice.APPEND)
    simulated = [cheaper_by_simulation(run, updates, case["a"]) for updates in range(1, first + 3)]
    assert simulated == [Choice.TIE] + [Choice.APPEND] * (first - 2) + [Choice.REPLACE] * 3


@given(RUNS, st.integers(1, 400))
def test_when_cached_tokens_are_free_appending_is_always_chosen(run: StatusRun, updates: int) -> None:
    advice = advise(run.inputs(updates, 0.0))
    assert advice.choice is advice.published.choice is Choice.APPEND
    assert advice.corrected.updates_at_tie is None
    assert advice.corrected.replace_first_cheaper_at is None


@given(RUNS, st.integers(1, 7), RATIOS)
def test_the_corrected_costs_are_the_difference_that_the_simulation_finds(
    run: StatusRun, updates: int, ratio: float
) -> None:
    corrected = advise(run.inputs(updates, ratio)).corrected
    replace, append = (simulate_status(run, updates, mode).price(ratio) for mode in BarMode)
    assert replace - append == pytest.approx(corrected.replace_cost - corrected.append_cost, abs=1e-6)


@given(RUNS, st.integers(1, 5), st.sampled_from([1, 16, 64]))
def test_blocks_never_let_a_run_reuse_more(run: StatusRun, updates: int, block_size: int) -> None:
    for mode in BarMode:
        exact, blocks = (simulate_status(run, updates, mode, block_size=size) for size in (1, block_size))
        assert exact.prompt_tokens == blocks.prompt_tokens
        assert blocks.cached_tokens <= exact.cached_tokens
        assert blocks.cached_tokens % block_size == 0


def test_replacing_shortens_the_prompt_and_reuses_less_of_it() -> None:
    run = StatusRun(status_tokens=10, tokens_between_updates=50, output_tokens=20, head_tokens=100)
    # Two calls: 110 tokens, then 100 + 50 + 10; only the head is shared when the bar has gone.
    assert simulate_status(run, 2, BarMode.REPLACE) == PromptCost(prompt_tokens=270, cached_tokens=100)
    assert simulate_status(run, 2, BarMode.APPEND) == PromptCost(prompt_tokens=280, cached_tokens=130)
    assert PromptCost(prompt_tokens=270, cached_tokens=100).price(0.1) == 180


def test_equal_costs_are_a_tie() -> None:
    # N* = 2 · 0.5 · 300 / (0.5 · 100) = 6.
    for updates, choice in ((5, Choice.APPEND), (6, Choice.TIE), (7, Choice.REPLACE)):
        at = inputs(price_ratio=0.5, status_tokens=100, recomputed_tokens=300, updates=updates)
        assert advise(at).choice is choice
        assert advise(at).corrected.replace_first_cheaper_at == 7


def test_less_than_a_block_after_the_old_bar_makes_replacing_free() -> None:
    assert advise(inputs(), block_size=16).corrected.updates_at_tie == pytest.approx(2 * 0.9 * 32 / 15)
    assert advise(inputs(updates=2), block_size=64).corrected.updates_at_tie == 0
    assert advise(inputs(updates=2), block_size=64).choice is Choice.REPLACE


@pytest.mark.parametrize(
    ("message", "build"),
    [
        ("501 of 500 were given", lambda: inputs(recomputed_tokens=501)),
        ("price_ratio", lambda: inputs(price_ratio=1.5)),
        ("at least 1 token", lambda: advise(inputs(), block_size=0)),
        (
            "13 outputs of 40 tokens must fit",
            lambda: StatusRun(status_tokens=1, tokens_between_updates=500, calls_per_update=13),
        ),
        (
            "updates 0",
            lambda: simulate_status(
                StatusRun(status_tokens=1, tokens_between_updates=500), 0, BarMode.REPLACE
            ),
        ),
    ],
)
def test_inputs_that_make_no_sense_are_refused(message: str, build: Any) -> None:
    with pytest.raises(UsageError, match=message):
        build()
