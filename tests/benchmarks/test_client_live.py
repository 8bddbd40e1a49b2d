from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import JsonValue

from benchmarks import client_live
from benchmarks.client_live import Pair, Waits, alternate, verdict, waits_in_words
from benchmarks.client_peers import Call, Reported
from benchmarks.client_process import Told, Watch
from serving.errors import LabError, UsageError

JOB: dict[str, JsonValue] = {"base_url": "http://x", "case": "m", "streams": 2, "requests": 4}
Asked = list[tuple[str, Mapping[str, JsonValue]]]


def pairs(*ratios: float) -> list[Pair]:
    waits = Waits(ttft_s=None, tpot_s=None)
    return [
        Pair(
            number=n,
            first="ours",
            ours=100 * ratio,
            ours_full=None,
            vllm=100,
            ours_waits=waits,
            vllm_waits=waits,
            prompt_tokens=1,
        )
        for n, ratio in enumerate(ratios)
    ]


def calls(*ttfts: float) -> list[Call]:
    """One request each, with a tenth of its TTFT as TPOT; the last one brought a single token."""
    return [
        Call(place, ttft, [], None if place == len(ttfts) - 1 else ttft / 10, None)
        for place, ttft in enumerate(ttfts)
    ]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The jobs in their order; ours answers half a percent faster, and its definition finds a later first token."""
    seen: Asked = []

    def told_by(client: str, job: Mapping[str, JsonValue], *, watch: Watch, timeout_s: float) -> Told:
        seen.append((client, job))
        rate = 100.5 if client == "ours" else 100.0
        later = 0.2 if client == "ours" else 0.0
        told = calls(0.1 + later, 0.5 + later, 0.3 + later)
        reported = Reported(told, rate, 1.0, prompt_tokens=40, output_tokens=8)
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


def test_both_sides_medians_are_kept_and_shown_in_every_pair_and_in_the_end(
    asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    found = alternate(JOB, 2, None, 1.0)
    assert found[1].ours_waits.ttft_s == pytest.approx(0.5)
    assert found[1].vllm_waits.tpot_s == pytest.approx(0.03)
    words = "TTFT ours 500.00, vllm 300.00 ms; TPOT ours 50.00, vllm 30.00 ms"
    assert capsys.readouterr().out.count(words) == 2
    slower = found[1].model_copy(update={"ours_waits": Waits(ttft_s=0.7, tpot_s=None)})
    assert (
        waits_in_words([found[0], slower])
        == "TTFT ours 600.00, vllm 300.00 ms; TPOT ours 50.00, vllm 30.00 ms"
    )
    assert (
        waits_in_words(pairs(1.0)) == "TTFT ours unknown, vllm unknown ms; TPOT ours unknown, vllm unknown ms"
    )


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
