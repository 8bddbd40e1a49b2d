from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.framework.records import RECORDS, RunFolder, RunIdentity, read_records, read_run
from experiments.framework.study import SaltScope, check_study, plan_digest
from experiments.framework.trials import CacheState, CacheTemperature, OutcomeKind, TrialRecord
from serving.errors import LabError, UsageError
from tests.support.scripted import exchange
from tests.support.toy_study import ARMS, BASE, TINY, Toy

STUDY = Toy(Path("unused"))
DIFF = check_study(STUDY, ARMS)
IDENTITY = RunIdentity(
    study="toy",
    size=TINY,
    arguments={"model": "nano"},
    seed=0,
    base=BASE,
    arms=ARMS,
    declared=tuple(sorted(STUDY.declared)),
    plan_sha256=plan_digest(STUDY.plan(TINY)),
    trials=8,
    model={"revision": "abc"},
    salt_scope=SaltScope.ATTEMPT,
    concurrency=1,
)


def record(arm: str = "append", seed: int = 0, *, kind: OutcomeKind = OutcomeKind.OK) -> TrialRecord:
    return TrialRecord(
        study="toy",
        arm=arm,
        factors={},
        task="task-0",
        seed=seed,
        repeat=0,
        order_index=0,
        attempt=1,
        salt="s",
        session=0,
        environment="e",
        started="2026-01-01T00:00:00.000+00:00",
        seconds=0.5,
        kind=kind,
        outcome="",
        cache=CacheState(temperature=CacheTemperature.COLD, proof=""),
        measures={"flag": True, "count": 1, "share": 0.5, "label": "x", "unknown": None},
    )


def test_exchanges_are_packed_and_come_back_and_those_of_earlier_runs_are_read_too(tmp_path: Path) -> None:
    with_calls = record().model_copy(update={"exchanges": (exchange("Ten o'clock."), exchange("\ud800"))})
    with RunFolder.open(tmp_path, IDENTITY, DIFF) as run:
        run.append(with_calls)
    line = json.loads((tmp_path / RECORDS).read_text())
    assert isinstance(line["exchanges"], str)
    line["exchanges"] = [one.model_dump(mode="json") for one in with_calls.exchanges]
    with (tmp_path / RECORDS).open("a") as file:
        file.write(json.dumps({**line, "seed": 1}) + "\n")
    packed, plain = read_records(tmp_path)
    assert packed.exchanges == plain.exchanges == with_calls.exchanges
    assert [one.exchanges for one in read_records(tmp_path, with_exchanges=False)] == [(), ()]


def test_a_run_that_goes_on_packs_against_its_first_exchanges(tmp_path: Path) -> None:
    made = [
        record(seed=seed).model_copy(update={"exchanges": (exchange("Ten o'clock."),) * 3})
        for seed in range(3)
    ]
    for one in made:
        with RunFolder.open(tmp_path, IDENTITY, DIFF) as run:
            run.append(one)
    assert [one.exchanges for one in read_records(tmp_path)] == [one.exchanges for one in made]
    first, *later = (len(json.loads(line)["exchanges"]) for line in (tmp_path / RECORDS).open())
    assert max(later) < first / 2


def test_packed_exchanges_that_were_changed_are_named_with_their_line(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, IDENTITY, DIFF) as run:
        run.append(record())
    line = json.loads((tmp_path / RECORDS).read_text())
    (tmp_path / RECORDS).write_text(json.dumps({**line, "exchanges": "YWJj"}) + "\n")
    with pytest.raises(LabError, match=r"Line 1 .* is not a trial record: it is not compressed text"):
        list(read_records(tmp_path))


def test_a_record_comes_back_with_its_types(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, IDENTITY, DIFF) as run:
        run.append(record())
    (back,) = read_records(tmp_path)
    assert back == record()
    assert [type(value) for value in back.measures.values()] == [bool, int, float, str, type(None)]


def test_a_scored_record_completes_its_trial_and_an_infrastructure_error_does_not(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, IDENTITY, DIFF) as run:
        run.append(record(kind=OutcomeKind.INFRASTRUCTURE_ERROR))
        run.append(record(seed=1, kind=OutcomeKind.TASK_FAILED))
    with RunFolder.open(tmp_path, IDENTITY, DIFF) as run:
        assert not run.is_complete("append/s0/r0/task-0")
        assert run.is_complete("append/s1/r0/task-0")
        with pytest.raises(LabError, match="second one is a bug"):
            run.append(record(seed=1))


def test_attempts_go_on_counting_after_a_reopening(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, IDENTITY, DIFF) as run:
        assert [run.begin_attempt("t"), run.begin_attempt("t"), run.begin_attempt("u")] == [1, 2, 1]
    with RunFolder.open(tmp_path, IDENTITY, DIFF) as run:
        assert [run.begin_attempt("t"), run.begin_attempt("u")] == [3, 2]


def test_a_run_that_fails_before_its_first_trial_leaves_nothing(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    for folder in (tmp_path / "new", there):
        with pytest.raises(KeyboardInterrupt), RunFolder.open(folder, IDENTITY, DIFF):
            raise KeyboardInterrupt
    assert not (tmp_path / "new").exists()
    assert list(there.iterdir()) == [], "the folder was not ours to take away, and its files were"


def test_a_run_that_fails_after_its_first_attempt_stays(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), RunFolder.open(tmp_path / "new", IDENTITY, DIFF) as run:
        run.begin_attempt("t")
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), RunFolder.open(tmp_path / "new", IDENTITY, DIFF) as run:
        raise KeyboardInterrupt
    with RunFolder.open(tmp_path / "new", IDENTITY, DIFF) as run:
        assert run.begin_attempt("t") == 2


def test_other_arguments_are_refused_and_each_that_differs_is_named(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, IDENTITY, DIFF):
        pass
    other = IDENTITY.model_copy(update={"seed": 7, "arguments": {"model": "big", "price": 2}})
    with pytest.raises(UsageError) as caught, RunFolder.open(tmp_path, other, DIFF):
        pass
    for said in (
        'arguments.model was "nano", now "big"',
        "arguments.price was null, now 2",
        "seed was 0, now 7",
    ):
        assert said in str(caught.value)
    assert "trials" not in str(caught.value)


def test_two_processes_cannot_run_one_folder(tmp_path: Path) -> None:
    script = (
        "import sys, fcntl, os; f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT);"
        "fcntl.flock(f, fcntl.LOCK_EX); os.write(f, str(os.getpid()).encode());"
        "print('held', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    assert other.stdin is not None
    try:
        assert other.stdout.readline() == b"held\n"
        with (
            pytest.raises(UsageError, match=f"process {other.pid}"),
            RunFolder.open(tmp_path, IDENTITY, DIFF),
        ):
            pass
    finally:
        other.stdin.close()
        other.wait()
        other.stdout.close()
    with RunFolder.open(tmp_path, IDENTITY, DIFF):
        pass  # the lock went with its process, though the file is still there


def test_a_folder_that_is_open_cannot_be_opened_again(tmp_path: Path) -> None:
    with (
        RunFolder.open(tmp_path, IDENTITY, DIFF),
        pytest.raises(UsageError, match=f"process {os.getpid()}"),
        RunFolder.open(tmp_path, IDENTITY, DIFF),
    ):
        pass


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("do not touch")
    with pytest.raises(UsageError, match=r"thesis\.tex"), RunFolder.open(tmp_path, IDENTITY, DIFF):
        pass
    assert (tmp_path / "thesis.tex").read_text() == "do not touch"


def test_another_schema_and_a_foreign_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a run folder"):
        read_run(tmp_path)
    with RunFolder.open(tmp_path, IDENTITY, DIFF):
        pass
    raw = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**raw, "schema_version": 99}))
    with pytest.raises(UsageError, match="schema 99"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(LabError, match="cannot be read"):
        read_run(tmp_path)


def test_an_engine_that_changed_between_two_halves_of_a_run_is_refused(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, IDENTITY, DIFF) as run:
        first = run.note_environment({"engine.block_size": 16}, {"vllm": "0.32"})
        assert run.note_environment({"engine.block_size": 16}, {"vllm": "0.32"}) == first
        assert run.note_environment({"engine.block_size": 32}, {"vllm": "0.33"}) != first
    with (
        RunFolder.open(tmp_path, IDENTITY, DIFF) as run,
        pytest.raises(LabError, match=r'vllm was "0\.32", now "0\.33"'),
    ):
        run.note_environment({"engine.block_size": 16}, {"vllm": "0.33"})


def test_a_line_that_is_json_but_no_record_is_reported_with_its_number(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, IDENTITY, DIFF) as run:
        run.append(record())
    with (tmp_path / "records.jsonl").open("a") as file:
        file.write('{"arm": "append"}\n')
    with pytest.raises(LabError, match="Line 2"):
        list(read_records(tmp_path))
    with pytest.raises(LabError, match="Line 2"), RunFolder.open(tmp_path, IDENTITY, DIFF):
        pass


def test_run_json_holds_what_the_contract_asks_for(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, IDENTITY, DIFF):
        pass
    info = read_run(tmp_path)
    assert (info.schema_version, info.identity, info.diff) == (1, IDENTITY, DIFF)
    assert info.run_id
