from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import JsonValue

from benchmarks import client_live
from benchmarks.client_live import Pair, alternate, verdict
from benchmarks.client_peers import Reported
from benchmarks.client_process import Told, Watch
from serving.errors import LabError, UsageError

JOB: dict[str, JsonValue] = {"base_url": "http://x", "case": "m", "streams": 2, "requests": 4}
Asked = list[tuple[str, Mapping[str, JsonValue]]]


def pairs(*ratios: float) -> list[Pair]:
    return [
        Pair(number=n, first="ours", ours=100 * ratio, ours_full=None, vllm=100, prompt_tokens=1)
        for n, ratio in enumerate(ratios)
    ]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The jobs in their order; ours answers half a percent faster."""
    seen: Asked = []

    def told_by(client: str, job: Mapping[str, JsonValue], *, watch: Watch, timeout_s: float) -> Told:
        seen.append((client, job))
        rate = 100.5 if client == "ours" else 100.0
        reported = Reported([], rate, 1.0, prompt_tokens=40, output_tokens=8)
        return Told(reported=reported, logs=None, cpu_s_per_1000=None)

    monkeypatch.setattr(client_live, "told_by", told_by)
    return seen


def test_both_sides_of_a_pair_send_the_same_texts_and_meet_no_block_of_each_other(asked: Asked) -> None:
    alternate(JOB, 4, None, 1.0)
    assert [client for client, _ in asked] == ["ours", "vllm", "vllm", "ours"] * 2
    seeds = [job["seed"] for _, job in asked]
    assert seeds[::2] == seeds[1::2]
    taken = {(seed, more) for seed in seeds[::2] if isinstance(seed, int) for more in range(3)}
    assert len({seed + more for seed, more in taken}) == 3 * 4  # with the short loads, no seed comes twice
    assert len({job["salt"] for _, job in asked}) == 8


def test_an_interrupted_comparison_goes_on_with_the_next_pair(asked: Asked, tmp_path: Path) -> None:
    alternate(JOB, 2, tmp_path, 1.0)
    found = alternate(JOB, 5, tmp_path, 1.0)
    assert [pair.number for pair in found] == [0, 1, 2, 3, 4]
    assert len(asked) == 2 * 5
    with pytest.raises(UsageError, match=r"choose another --out"):
        alternate({**JOB, "streams": 3}, 5, tmp_path, 1.0)


def test_sides_that_were_asked_unequal_prompts_are_not_compared(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    told_by = client_live.told_by

    def longer(client: str, job: Mapping[str, JsonValue], *, watch: Watch, timeout_s: float) -> Told:
        told = told_by(client, job, watch=watch, timeout_s=timeout_s)
        more = {"ours": 40, "vllm": 41}[client]
        reported = Reported([], 1.0, 1.0, prompt_tokens=more, output_tokens=8)
        return told.model_copy(update={"reported": reported})

    monkeypatch.setattr(client_live, "told_by", longer)
    with pytest.raises(LabError, match=r"same prompt_tokens .* got 40 \(ours\) and 41 \(vllm\)"):
        alternate(JOB, 1, None, 1.0)


@pytest.mark.parametrize(
    ("ratios", "words", "reached"),
    [
        ((1.0, 1.01, 0.99, 1.0, 1.005), "within 3%", True),
        ((1.1, 1.11, 1.12, 1.1, 1.1), "more than 3% apart", False),
        ((0.8, 1.2, 1.0, 0.9, 1.1), "not known yet", False),
        ((1.0, 1.0), "five pairs or more", False),
    ],
)
def test_the_target_is_reached_only_with_the_whole_interval(
    ratios: tuple[float, ...], words: str, reached: bool
) -> None:
    _, said, found = verdict(pairs(*ratios))
    assert words in said
    assert found is reached
