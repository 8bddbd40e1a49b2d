from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.errors import UsageError
from serving.explain.ttft import (
    Loss,
    TtftModel,
    TtftSample,
    bootstrap_ttft,
    fit_ttft,
    held_out,
    judge_ttft,
)

MACHINE = TtftModel(request_s=0.05, token_s=4e-3, pair_s=2e-6)
SHAPES = [(k, u) for k in (0, 64, 512, 2048) for u in (16, 100, 700, 1500)]


def measured(machine: TtftModel = MACHINE, *, noise: float = 0.0, clusters: int = 5) -> list[TtftSample]:
    rng = np.random.default_rng(7)
    return [
        TtftSample(
            cached_tokens=k,
            uncached_tokens=u,
            seconds=machine.seconds(k, u) * (1 + noise * abs(rng.standard_normal())),
            cluster=f"seed-{cluster}",
        )
        for cluster in range(clusters)
        for k, u in SHAPES
    ]


def test_a_computed_token_attends_to_every_token_before_it() -> None:
    model = TtftModel(request_s=0, token_s=0, pair_s=1)
    assert model.seconds(10, 4) == pytest.approx(sum(10 + i + 0.5 for i in range(4)))


@pytest.mark.parametrize("loss", Loss)
@settings(max_examples=25)
@given(request_s=st.floats(0.001, 1), token_s=st.floats(1e-5, 1e-1), pair_s=st.floats(1e-8, 1e-4))
def test_exact_times_give_back_the_machine(
    loss: Loss, request_s: float, token_s: float, pair_s: float
) -> None:
    machine = TtftModel(request_s=request_s, token_s=token_s, pair_s=pair_s)
    fitted = fit_ttft(measured(machine, clusters=1), loss)
    for cached, uncached in SHAPES:
        assert fitted.seconds(cached, uncached) == pytest.approx(machine.seconds(cached, uncached), rel=1e-4)


def test_a_few_interrupted_requests_do_not_move_the_typical_one() -> None:
    samples = measured()
    interrupted = [
        sample.model_copy(update={"seconds": sample.seconds + 20}) if place % 10 == 0 else sample
        for place, sample in enumerate(samples)
    ]
    typical, mean = fit_ttft(interrupted, Loss.ABSOLUTE), fit_ttft(interrupted, Loss.SQUARED)
    assert typical.seconds(0, 700) == pytest.approx(MACHINE.seconds(0, 700), rel=1e-3)
    assert mean.seconds(0, 700) > 1.2 * MACHINE.seconds(0, 700)


@pytest.mark.parametrize("loss", Loss)
def test_no_coefficient_falls_below_nothing(loss: Loss) -> None:
    faster_when_longer = [
        TtftSample(cached_tokens=k, uncached_tokens=u, seconds=1 / u, cluster="a") for k, u in SHAPES
    ]
    fitted = fit_ttft(faster_when_longer, loss)
    assert min(fitted.request_s, fitted.token_s, fitted.pair_s) >= 0


def test_intervals_hold_the_machine_and_grow_with_noise() -> None:
    quiet, loud = (bootstrap_ttft(measured(noise=n), np.random.default_rng(0)) for n in (0.01, 0.2))
    assert quiet is not None and loud is not None
    assert quiet["token_s"].low <= MACHINE.token_s * 1.01
    assert quiet["token_s"].high >= MACHINE.token_s
    assert loud["token_s"].high - loud["token_s"].low > quiet["token_s"].high - quiet["token_s"].low


def test_one_cluster_gives_no_interval_and_no_held_out_request() -> None:
    samples = measured(clusters=1)
    assert bootstrap_ttft(samples, np.random.default_rng(0)) is None
    with pytest.raises(UsageError, match="two clusters"):
        held_out(samples)


def test_a_held_out_request_is_predicted_without_its_cluster() -> None:
    samples = measured(clusters=4)
    odd = [
        sample.model_copy(update={"seconds": 100 * sample.seconds}) if sample.cluster == "seed-2" else sample
        for sample in samples
    ]
    for prediction in held_out(odd):
        expected = MACHINE.seconds(prediction.sample.cached_tokens, prediction.sample.uncached_tokens)
        assert prediction.predicted_s == pytest.approx(expected, rel=1e-3)


def test_held_out_errors_are_those_of_the_noise() -> None:
    fit = judge_ttft(measured(noise=0.05, clusters=6))
    assert 0.005 < fit.median_relative_error < 0.05
    assert fit.median_error_s <= fit.p90_error_s
    assert (fit.samples, fit.clusters, len(fit.held_out)) == (96, 6, 96)


@pytest.mark.parametrize(
    "samples",
    [
        [],
        measured()[:2],
        [TtftSample(cached_tokens=0, uncached_tokens=100, seconds=1, cluster=str(i)) for i in range(9)],
    ],
)
def test_requests_that_cannot_tell_the_coefficients_apart_are_refused(samples: list[TtftSample]) -> None:
    with pytest.raises(UsageError, match="different lengths"):
        fit_ttft(samples)
