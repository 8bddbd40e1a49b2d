"""A run that is killed anywhere and taken up again has every trial once and no salt twice."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.framework import provenance
from experiments.framework.provenance import Code
from experiments.framework.records import count_attempts, read_records, read_run
from experiments.framework.runner import run_study
from experiments.framework.study import Size
from tests.support.toy_study import TINY, Starter, Toy

LONG = Size(name="long", tasks=4, seeds=6, repeats=4)  # 384 trials of 4 ms outlast 15 kills within 0.1 s each
ONE = Size(name="one", tasks=1, seeds=1)


@pytest.fixture(autouse=True)
def without_git_and_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking git is most of the time of a run this small, and a kill, unlike a power cut, loses no page."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(provenance, "this_code", lambda _: Code(revision=None, dirty=None, version=None))


def test_kill_dash_nine_at_random_moments_loses_and_doubles_no_trial(tmp_path: Path) -> None:
    chance = random.Random(20)
    killed = 0
    for _ in range(15):
        child = _fork(lambda: _run(tmp_path, LONG, pause_s=0.004))
        time.sleep(chance.uniform(0.0, 0.1))
        os.kill(child, signal.SIGKILL)
        killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert killed == 15, "the run was over before it could be killed often enough"
    assert _lines(tmp_path / "ledger") > 0, "no child got as far as a trial"
    _finish_and_check(tmp_path, LONG)


@pytest.mark.parametrize("half", [False, True], ids=["before-the-call", "half-of-the-write"])
def test_a_death_at_each_step_to_the_disk_loses_and_doubles_no_trial(tmp_path: Path, half: bool) -> None:
    deaths = 0
    for step in range(1, 200):
        folder = tmp_path / str(step)
        folder.mkdir()

        def dying(folder: Path = folder, step: int = step) -> None:
            _die_at(step, half)
            _run(folder, ONE)

        status = os.waitpid(_fork(dying), 0)[1]
        _finish_and_check(folder, ONE)
        if os.waitstatus_to_exitcode(status) == 0:
            break  # the run has fewer steps than this
        deaths += 1
    else:
        pytest.fail("the run never got to its end")
    assert deaths > 4 * 4, "a trial takes two writes and two fsyncs, and there are 4 trials"


def test_a_death_at_each_step_of_the_resumed_run_loses_and_doubles_no_trial(tmp_path: Path) -> None:
    for step in range(1, 400, 3):

        def dying(step: int = step) -> None:
            _die_at(step, half=True)
            _run(tmp_path, TINY)

        if os.waitstatus_to_exitcode(os.waitpid(_fork(dying), 0)[1]) == 0:
            break
    _finish_and_check(tmp_path, TINY)


def _run(folder: Path, size: Size, *, pause_s: float = 0.0) -> None:
    run_study(Toy(folder / "ledger", pause_s=pause_s), size, folder=folder / "run", serve=Starter())


def _finish_and_check(folder: Path, size: Size) -> None:
    _run(folder, size)
    study = Toy(folder / "ledger")
    records = list(read_records(folder / "run"))
    expected = Counter((arm.name, spec.model_dump_json()) for arm in study.arms for spec in study.plan(size))
    assert Counter((record.arm, record.spec.model_dump_json()) for record in records) == expected
    assert all(record.scored for record in records)
    salts = (folder / "ledger").read_text().split()
    assert len(salts) == len(set(salts)), "an attempt met the salt of an earlier one"
    assert {record.salt for record in records} <= set(salts)
    assert count_attempts(folder / "run") >= len(salts)
    assert {record.session for record in records} <= set(range(len(read_run(folder / "run").sessions)))


def _fork(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)  # never back into pytest
    return child


def _die_at(step: int, half: bool) -> None:
    """Make the `step`-th write, fsync or rename of this process its last, half done if it is a write."""
    left = [step]

    def wrap(call: Callable[..., object], *, is_write: bool = False) -> Callable[..., object]:
        def wrapped(*args: object, **kwargs: object) -> object:
            left[0] -= 1
            if left[0] == 0:
                if half and is_write:
                    descriptor, data = args
                    assert isinstance(data, bytes)
                    call(descriptor, data[: len(data) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return wrapped

    os.write = wrap(os.write, is_write=True)  # type: ignore[assignment]
    os.fsync = wrap(os.fsync)  # type: ignore[assignment]
    Path.replace = wrap(Path.replace)  # type: ignore[assignment,method-assign]


def _lines(path: Path) -> int:
    return len(path.read_text().split()) if path.exists() else 0
