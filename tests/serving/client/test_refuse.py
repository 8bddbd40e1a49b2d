from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.client import CompletionRequest, CpuEngineLimits, Refusal, RefusedRequestError
from serving.client.refuse import check
from tests.support.asking import ask


def _refusal(request, limits=None) -> Refusal | None:
    try:
        check(request, request.body(), limits)
    except RefusedRequestError as refused:
        return refused.reason
    return None


@pytest.mark.parametrize(
    ("changes", "limits", "refused"),
    [
        ({"seed": 1, "temperature": 0.5}, None, False),
        ({"seed": 1, "temperature": 0.5}, CpuEngineLimits(max_num_batched_tokens=2048), True),
        ({"seed": 1, "temperature": None}, CpuEngineLimits(max_num_batched_tokens=2048), True),
        ({"seed": 1, "temperature": 0.0}, CpuEngineLimits(max_num_batched_tokens=2048), False),
        ({"temperature": 0.5}, CpuEngineLimits(max_num_batched_tokens=2048), False),
        (
            {"seed": 1, "temperature": 0.5},
            CpuEngineLimits(max_num_batched_tokens=2048, max_model_len=2048),
            False,
        ),
        (
            {"seed": 1, "temperature": 0.5},
            CpuEngineLimits(max_num_batched_tokens=2048, max_model_len=2049),
            True,
        ),
        (
            {"seed": 1, "temperature": 0.5, "rendered_tokens": 2048},
            CpuEngineLimits(max_num_batched_tokens=2048),
            False,
        ),
        (
            {"seed": 1, "temperature": 0.5, "rendered_tokens": 2049},
            CpuEngineLimits(max_num_batched_tokens=2048),
            True,
        ),
    ],
)
def test_a_seeded_sampled_prompt_longer_than_a_step_is_refused_for_a_cpu_engine(changes, limits, refused):
    assert _refusal(ask("m", **changes), limits) == (Refusal.SEED_KILLS_CPU_ENGINE if refused else None)


@pytest.mark.parametrize("length", [64, 65])
def test_the_length_of_a_token_prompt_is_known(length):
    request = CompletionRequest(model="m", prompt=(1,) * length, seed=1, temperature=1.0)
    refused = _refusal(request, CpuEngineLimits(max_num_batched_tokens=64))
    assert refused == (Refusal.SEED_KILLS_CPU_ENGINE if length > 64 else None)


def test_prompt_logprobs_are_refused_in_measured_requests_only():
    assert _refusal(ask("m", extra={"prompt_logprobs": 1})) is Refusal.PROMPT_LOGPROBS
    assert _refusal(ask("m", extra={"prompt_logprobs": 1}, measured=False)) is None


@given(st.text(max_size=140))
def test_a_salt_is_refused_exactly_where_the_server_would_misread_it(salt):
    good = 0 < len(salt) <= 128 and not set(salt) & set("@/\\\0")
    surrogate = any("\ud800" <= character <= "\udfff" for character in salt)
    expected = Refusal.CACHE_SALT if not good else Refusal.UNPAIRED_SURROGATE if surrogate else None
    assert _refusal(ask("m", cache_salt=salt)) == expected


@pytest.mark.parametrize("salt", ["a" * 128, "run-1.trial_2", "é"])
def test_a_good_salt_passes(salt):
    assert _refusal(ask("m", cache_salt=salt)) is None


def test_an_unpaired_surrogate_is_refused_with_its_place():
    request = ask("m", tools=({"function": {"name": "f", "parameters": {"enum": ["ok", "a\ud83d"]}}},))
    with pytest.raises(
        RefusedRequestError, match=r"U\+D83D at character 1 of tools\[0\]\.function\.parameters"
    ):
        check(request, request.body())


def test_a_paired_surrogate_is_no_surrogate():
    assert _refusal(ask("\U0001f642")) is None


def test_several_choices_and_an_empty_prompt_are_refused():
    assert _refusal(ask("m", extra={"n": 2})) is Refusal.SEVERAL_CHOICES
    assert _refusal(ask("m", extra={"n": 1})) is None
    assert _refusal(CompletionRequest(model="m", prompt=())) is Refusal.EMPTY_PROMPT
