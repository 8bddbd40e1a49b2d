from __future__ import annotations

from collections import Counter
from pathlib import Path
from threading import Barrier, Lock

import pytest

from experiments.framework.failures import InequalityError, InfrastructureError, StoppedError
from experiments.framework.records import read_records
from experiments.framework.runner import run_study
from experiments.framework.study import SaltScope, TrialContext
from experiments.framework.trials import TrialSpec
from serving.errors import LabError, UsageError
from serving.progress import Silent
from tests.support.toy_study import SMALL, TINY, Starter, Toy


class Wide(Toy):
    """A behaviour study: eight at once, one salt a scenario."""

    concurrency = 8
    salt_scope = SaltScope.SCENARIO


def test_behaviour_trials_run_side_by_side_each_once(tmp_path: Path) -> None:
    together = Barrier(3, timeout=30)  # 36 and 12 trials: threes go through only if three run at once

    def meet(spec: TrialSpec, context: TrialContext[Path]) -> None:
        together.wait()

    class Three(Wide):
        concurrency = 3

    done = run_study(Three(tmp_path / "ledger", hook=meet), SMALL, folder=tmp_path / "run", serve=Starter())
    records = list(read_records(tmp_path / "run"))
    assert done.complete == len(records) == 48
    assert sorted(record.order_index for record in records) == list(range(48))


def test_arms_of_one_scenario_share_a_salt_only_where_the_study_says_so(tmp_path: Path) -> None:
    run_study(Wide(tmp_path / "ledger"), SMALL, folder=tmp_path / "wide", serve=Starter())
    wide = list(read_records(tmp_path / "wide"))
    scenarios = {(record.task, record.seed) for record in wide}
    assert len({(r.task, r.seed, r.salt) for r in wide}) == len({r.salt for r in wide}) == len(scenarios) == 6
    run_study(Toy(tmp_path / "ledger"), SMALL, folder=tmp_path / "narrow", serve=Starter())
    assert len({record.salt for record in read_records(tmp_path / "narrow")}) == 48


def test_an_interruption_lets_trials_in_flight_end_before_the_engine_stops(tmp_path: Path) -> None:
    starter, guard, without_engine = Starter(), Lock(), Counter[str]()

    def watch(spec: TrialSpec, context: TrialContext[Path]) -> None:
        with guard:
            without_engine["seen"] += starter.running == 0

    class Impatient(Silent):
        def __init__(self) -> None:
            self.ended = 0

        def advance(self, amount: float) -> None:
            self.ended += 1
            if self.ended == 5:
                raise KeyboardInterrupt

    study = Wide(tmp_path / "ledger", hook=watch, pause_s=0.02)
    with pytest.raises(StoppedError, match="of 48 trials"):
        run_study(study, SMALL, folder=tmp_path / "run", serve=starter, progress=Impatient())
    kept = len(list(read_records(tmp_path / "run")))
    assert 5 <= kept < 36
    assert (starter.running, without_engine["seen"]) == (0, 0)
    assert run_study(study, SMALL, folder=tmp_path / "run", serve=starter).complete == 48
    assert len(list(read_records(tmp_path / "run"))) == 48


def test_a_broken_equality_in_one_of_many_stops_them_all(tmp_path: Path) -> None:
    def unequal(spec: TrialSpec, context: TrialContext[Path]) -> None:
        if context.arm.name == "clock":
            raise InequalityError("prompt ids", expected="[1, 2]", got="[1, 3]")

    study = Wide(tmp_path / "ledger", hook=unequal, pause_s=0.005)
    with pytest.raises(InequalityError, match=r"\[1, 2\].*\[1, 3\]"):
        run_study(study, SMALL, folder=tmp_path / "run", serve=Starter())
    assert len(list(read_records(tmp_path / "run"))) < 48


def test_failures_of_the_machinery_are_counted_right_by_many_threads(tmp_path: Path) -> None:
    def once(spec: TrialSpec, context: TrialContext[Path]) -> None:
        if context.attempt == 1:
            raise InfrastructureError("hiccup")

    starter = Starter()
    done = run_study(Wide(tmp_path / "ledger", hook=once), SMALL, folder=tmp_path / "run", serve=starter)
    assert (done.complete, done.failed_attempts) == (48, 48)
    assert Counter(r.attempt for r in read_records(tmp_path / "run")) == {1: 48, 2: 48}

    def dead(spec: TrialSpec, context: TrialContext[Path]) -> None:
        raise ConnectionRefusedError

    with pytest.raises(LabError, match="trials in a row"):
        run_study(Wide(tmp_path / "ledger", hook=dead), SMALL, folder=tmp_path / "dead", serve=Starter())


def test_how_a_study_runs_is_part_of_what_was_asked(tmp_path: Path) -> None:
    run_study(Toy(tmp_path / "ledger"), TINY, folder=tmp_path / "run", serve=Starter())
    with pytest.raises(UsageError, match=r"concurrency was 1, now 8; salt_scope was"):
        run_study(Wide(tmp_path / "ledger"), TINY, folder=tmp_path / "run", serve=Starter())
