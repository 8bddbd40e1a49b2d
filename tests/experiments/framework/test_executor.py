from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Lock

import pytest
from pydantic import JsonValue

from experiments.framework.arms import Arm
from experiments.framework.engine_slot import EngineSlot
from experiments.framework.failures import InequalityError, InfrastructureError, StoppedError
from experiments.framework.records import RunFolder, read_records
from experiments.framework.runner import RunOptions, identify, run_study
from experiments.framework.study import SaltScope, Served, TrialContext
from experiments.framework.trials import TrialSpec
from serving.errors import LabError, UsageError
from serving.progress import Silent
from tests.support.toy_study import ARMS, SMALL, TINY, Starter, Toy


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


def test_all_trials_of_a_run_share_a_salt_only_where_the_study_says_so(tmp_path: Path) -> None:
    class Shared(Wide):
        salt_scope = SaltScope.RUN

    for name in ("one", "two"):
        run_study(Shared(tmp_path / "ledger"), SMALL, folder=tmp_path / name, serve=Starter())
    one, two = ({record.salt for record in read_records(tmp_path / name)} for name in ("one", "two"))
    assert len(one) == len(two) == 1
    assert one != two


def test_a_pair_of_arm_and_trial_without_a_meaning_is_neither_run_nor_missed(tmp_path: Path) -> None:
    class Partial(Wide):
        def applies(self, arm: Arm, spec: TrialSpec) -> bool:
            return arm.name != "clock" or spec.seed == 0

    done = run_study(Partial(tmp_path / "ledger"), SMALL, folder=tmp_path / "run", serve=Starter())
    found = Counter(record.arm for record in read_records(tmp_path / "run"))
    assert found == {"append": 12, "null": 12, "block-32": 12, "clock": 4}
    assert done.complete == done.planned == 40
    assert done.unfinished == 0


class Mortal(Starter):
    """Engines that die when a test says so; calls on a dead one fail."""

    def __init__(self, lives: int = 1) -> None:
        super().__init__()
        self.lives = lives
        """Deaths after which an engine lives on."""
        self.dead = False

    @contextmanager
    def __call__(self, engine: Mapping[str, JsonValue]) -> Iterator[Served[Path]]:
        with super().__call__(engine) as served:
            self.dead = False
            yield replace(served, death=lambda: "It ran out of memory." if self.dead else None)

    def call(self, spec: TrialSpec, context: TrialContext[Path]) -> None:
        if len(self.started) <= self.lives and spec.seed == 1:
            self.dead = True
        if self.dead:
            raise ConnectionResetError("the engine is gone")


class Mended(Wide):
    """On one engine."""

    arms = tuple(arm for arm in ARMS if arm.name != "block-32")


@pytest.mark.parametrize("at_once", [1, 8])
def test_an_engine_that_dies_is_started_once_more_and_what_it_failed_is_tried_again(
    at_once: int, tmp_path: Path
) -> None:
    starter = Mortal()
    study = Mended(tmp_path / "ledger", hook=starter.call, pause_s=0.002)
    study.concurrency = at_once
    done = run_study(study, SMALL, folder=tmp_path / "run", serve=starter)
    assert (done.complete, len(starter.started), starter.running) == (36, 2, 0)
    records = list(read_records(tmp_path / "run"))
    failed = [record for record in records if not record.scored]
    assert 1 <= len(failed) <= at_once
    assert done.failed_attempts == len(failed)
    again = {(r.arm, r.spec) for r in failed}
    assert {(r.arm, r.spec) for r in records if r.scored and r.attempt > 1} == again


@pytest.mark.parametrize("at_once", [1, 8])
def test_an_engine_that_dies_again_stops_the_run_with_its_cause_and_the_run_goes_on_later(
    at_once: int, tmp_path: Path
) -> None:
    starter = Mortal(lives=2)
    study = Mended(tmp_path / "ledger", hook=starter.call, pause_s=0.002)
    study.concurrency = at_once
    with pytest.raises(LabError, match=r"died twice.*It ran out of memory\."):
        run_study(study, SMALL, folder=tmp_path / "run", serve=starter)
    assert starter.running == 0
    assert run_study(study, SMALL, folder=tmp_path / "run", serve=starter).complete == 36


def test_a_slot_that_was_left_starts_nothing_for_a_thread_that_is_late(tmp_path: Path) -> None:
    starter = Mortal()
    study = Mended(tmp_path / "ledger")
    identity, diff = identify(study, TINY, RunOptions())
    with RunFolder.open(tmp_path / "run", identity, diff) as run:
        with EngineSlot(starter, {}, run) as slot:
            filled = slot.filled
        starter.dead = True
        assert slot.mend(filled) is None
    assert len(starter.started) == 1


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
