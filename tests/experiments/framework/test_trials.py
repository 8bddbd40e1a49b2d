from __future__ import annotations

import pytest
from pydantic import ValidationError

from experiments.framework.trials import (
    CacheTemperature,
    CallRecord,
    TrialOutcome,
    TrialSpec,
    prove_cache_state,
)


def call(cached: int | None, predicted: int | None) -> CallRecord:
    return CallRecord(prompt_tokens=100, cached_tokens=cached, predicted_tokens=predicted)


def test_a_trial_is_cold_or_warm_by_its_first_call_once_every_prediction_was_reported() -> None:
    assert prove_cache_state([call(0, 0), call(96, 96)]).temperature is CacheTemperature.COLD
    assert prove_cache_state([call(96, 96)]).temperature is CacheTemperature.WARM


@pytest.mark.parametrize("calls", [[], [call(None, 0)], [call(0, None)], [call(0, 0), call(96, 80)]])
def test_without_proof_the_state_is_unproven(calls: list[CallRecord]) -> None:
    assert prove_cache_state(calls).temperature is CacheTemperature.UNPROVEN


def test_causes_that_do_not_add_up_to_the_uncached_tokens_are_refused() -> None:
    CallRecord(prompt_tokens=100, predicted_tokens=64, causes={"new": 35, "last_token": 1})
    with pytest.raises(ValidationError, match="uncached 36 tokens, got 35"):
        CallRecord(prompt_tokens=100, predicted_tokens=64, causes={"new": 35})


def test_a_measure_that_is_no_number_is_refused_where_it_was_made() -> None:
    with pytest.raises(ValidationError):
        TrialOutcome(measures={"share": float("nan")})


def test_repeats_of_one_task_and_seed_are_one_cluster() -> None:
    specs = [TrialSpec(task="a", seed=1, repeat=r) for r in (0, 1)]
    assert len({spec.cluster for spec in specs}) == 1
