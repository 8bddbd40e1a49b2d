from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import JsonValue

from benchmarks import client_kept
from benchmarks.client_comparison import Log, Side, judge, plan, verdicts
from benchmarks.client_kept import kept_in
from benchmarks.client_peers import Call
from experiments.framework.provenance import Code
from serving.errors import UsageError
from tests.support.scripts import TIMED

CASE = "timed-role-first"
ASKED: dict[str, JsonValue] = {"streams": 4}


def log(received_ns: int) -> Log:
    beats = TIMED[CASE]
    return Log(
        received_ns=received_ns,
        sends=[(received_ns + round(beat.at_ms * 1e6), beat.tokens > 0) for beat in beats],
    )


def call(start: float, *, late_s: float = 0.0) -> Call:
    """What a client would say that is late with the first token and right in all else."""
    return Call(start, 0.08 + late_s, [0.02] * 15, 0.02, 0.38)


def side(client: str, late_s: float) -> Side:
    calls = [call(start, late_s=late_s + start / 1e6) for start in range(8)]
    errors = judge(client, CASE, 4, calls, [log(10**9 * n) for n in range(8)])
    return Side(
        client=client,
        case=CASE,
        streams=4,
        requests=8,
        errors=tuple(errors),
        throughput_error_percent=0.0,
        cpu_s_per_1000_requests=None,
    )


def test_a_client_that_is_late_by_ten_milliseconds_is_found_to_be() -> None:
    found = {(error.measure, error.judged): error.bias.estimate for error in side("ours", 0.01).errors}
    assert found["ttft", "own"] == found["ttft", "tokens"] == pytest.approx(10, abs=0.01)
    assert (found["itl", "own"], found["tpot", "own"]) == pytest.approx((0, 0), abs=1e-6)


def test_vllms_bench_is_right_by_its_own_word_and_early_by_the_tokens() -> None:
    found = {
        (error.measure, error.judged): error.bias.estimate for error in side("vllm", -0.075).errors
    }  # at the role chunk
    assert found["ttft", "own"] == pytest.approx(0, abs=0.01)
    assert found["ttft", "tokens"] == pytest.approx(-75, abs=0.01)


def test_ours_may_not_be_worse_than_the_best_other() -> None:
    (sentence,) = verdicts([side("ours", 0.001), side("vllm", -0.075)])
    assert sentence.startswith("timed-role-first 4 ttft own: ours 1 [1, ")
    assert verdicts([side("ours", 0.0), side("vllm", -0.06)]) == []


def test_every_client_takes_its_turn_in_every_case() -> None:
    loads = plan(("ours", "vllm"), ("a", "b"), (1, 64), 6)
    assert [(load.case, load.streams, load.client) for load in loads[:3]] == [
        ("a", 1, "ours"),
        ("a", 1, "vllm"),
        ("a", 64, "ours"),
    ]
    assert {load.requests for load in loads} == {24, 128}


def test_finished_sides_outlive_a_torn_line_and_belong_to_one_question_and_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at(revision: str) -> None:
        code = Code(revision=revision, dirty=False, version=None)
        monkeypatch.setattr(client_kept, "this_code", lambda _folder: code)

    at("abc")
    file = tmp_path / "new" / "sides.jsonl"
    with kept_in(file, ASKED) as kept:
        assert kept.lines == ()
        kept.add(side("ours", 0.0).model_dump(mode="json"))
    with file.open("ab") as journal:
        journal.write(b'{"client": "vl')
    with kept_in(file, ASKED) as kept:
        assert [Side.model_validate(line) for line in kept.lines] == [side("ours", 0.0)]
        kept.add(side("vllm", 0.0).model_dump(mode="json"))
    with kept_in(file, ASKED) as kept:
        assert len(kept.lines) == 2
    with pytest.raises(UsageError, match=r'"streams": 5.*"streams": 4.*choose another --out'):
        kept_in(file, {"streams": 5}).__enter__()
    at("def")
    with pytest.raises(UsageError, match=r'"revision": "def".*"revision": "abc".*choose another --out'):
        kept_in(file, ASKED).__enter__()
