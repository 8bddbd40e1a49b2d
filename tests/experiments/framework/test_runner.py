from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.framework.failures import InequalityError, InfrastructureError, StoppedError
from experiments.framework.records import read_records, read_run, read_violations
from experiments.framework.runner import RunOptions, run_study
from experiments.framework.study import TrialContext
from experiments.framework.trials import OutcomeKind, TrialSpec
from serving.errors import LabError, UsageError
from tests.support.toy_study import SMALL, TINY, Starter, Toy


class Told:
    """A `Progress` that remembers."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, float | None]] = []
        self.done = 0.0
        self.notes: list[str] = []

    def begin(self, stage: str, *, total: float | None = None, unit: str = "") -> None:
        self.stages.append((stage, total))

    def advance(self, amount: float) -> None:
        self.done += amount

    def note(self, text: str) -> None:
        self.notes.append(text)

    def end(self) -> None:
        return


def failing(*, times: int, error: Callable[[], BaseException], arm: str = "clock") -> Callable[..., None]:
    """Fail the first `times` attempts at every trial of one arm."""

    def hook(spec: TrialSpec, context: TrialContext[Path]) -> None:
        if context.arm.name == arm and context.attempt <= times:
            raise error()

    return hook


def test_every_trial_runs_once_paired_and_in_the_recorded_order(tmp_path: Path) -> None:
    starter, told = Starter(), Told()
    done = run_study(Toy(tmp_path / "ledger"), SMALL, folder=tmp_path / "run", serve=starter, progress=told)
    records = list(read_records(tmp_path / "run"))
    assert (done.planned, done.complete, done.unfinished, done.failed_attempts) == (48, 48, 0, 0)
    assert [record.order_index for record in records] == list(range(48))
    assert Counter(record.arm for record in records) == dict.fromkeys(
        ("append", "null", "clock", "block-32"), 12
    )
    assert len({record.salt for record in records}) == 48
    assert len(starter.started) == 2
    assert starter.running == 0
    assert told.done == sum(total or 0 for _, total in told.stages) == 48
    assert any("24 of 48 trials, about" in note for note in told.notes)
    assert told.notes[:2] == ["engine.block_size  (base 16)", "    block-32  32"], (
        "the treatment is shown first"
    )


def test_the_order_is_a_function_of_the_seed(tmp_path: Path) -> None:
    def order(name: str, seed: int) -> list[tuple[str, str]]:
        folder = tmp_path / name
        run_study(
            Toy(tmp_path / "ledger"), SMALL, folder=folder, serve=Starter(), options=RunOptions(seed=seed)
        )
        return [(record.arm, record.spec.model_dump_json()) for record in read_records(folder)]

    assert order("a", 1) == order("b", 1) != order("c", 2)


def test_a_finished_run_starts_no_engine_again(tmp_path: Path) -> None:
    run_study(Toy(tmp_path / "ledger"), TINY, folder=tmp_path / "run", serve=Starter())
    again = Starter()
    done = run_study(Toy(tmp_path / "ledger"), TINY, folder=tmp_path / "run", serve=again)
    assert (again.started, done.complete) == ([], 8)
    assert len(read_run(tmp_path / "run").sessions) == 1


@pytest.mark.parametrize(
    "error", [lambda: InfrastructureError("died"), lambda: TimeoutError("slow"), ConnectionResetError]
)
def test_the_machinery_s_failures_are_retried_with_a_new_salt_and_kept_apart(
    tmp_path: Path, error: Callable[[], BaseException]
) -> None:
    study = Toy(tmp_path / "ledger", hook=failing(times=2, error=error))
    starter = Starter()
    done = run_study(study, TINY, folder=tmp_path / "run", serve=starter)
    records = list(read_records(tmp_path / "run"))
    assert Counter(record.kind for record in records) == {
        OutcomeKind.OK: 8,
        OutcomeKind.INFRASTRUCTURE_ERROR: 4,
    }
    assert (done.complete, done.failed_attempts) == (8, 4)
    clock = [record for record in records if record.arm == "clock"]
    assert [record.attempt for record in clock] == [1, 2, 3, 1, 2, 3]
    assert not any(record.scored or record.measures for record in clock if record.attempt < 3)
    assert len({record.salt for record in records}) == 12
    assert len(starter.started) == 2 + 2  # a third attempt gets a fresh engine
    assert starter.running == 0


def test_a_trial_that_never_gets_through_is_left_for_the_next_session(tmp_path: Path) -> None:
    study = Toy(tmp_path / "ledger", hook=failing(times=3, error=lambda: InfrastructureError("died")))
    done = run_study(study, TINY, folder=tmp_path / "run", serve=Starter())
    assert (done.complete, done.unfinished, done.failed_attempts) == (6, 2, 6)
    done = run_study(study, TINY, folder=tmp_path / "run", serve=Starter())
    assert (done.complete, done.unfinished, done.failed_attempts) == (8, 0, 0)
    assert {r.attempt for r in read_records(tmp_path / "run") if r.arm == "clock" and r.scored} == {4}


def test_a_dead_server_stops_the_run_instead_of_failing_every_trial(tmp_path: Path) -> None:
    def dead(spec: TrialSpec, context: TrialContext[Path]) -> None:
        raise ConnectionRefusedError("no server")

    starter = Starter()
    with pytest.raises(LabError, match="3 trials in a row, 3 attempts each"):
        run_study(Toy(tmp_path / "ledger", hook=dead), SMALL, folder=tmp_path / "run", serve=starter)
    assert len(list(read_records(tmp_path / "run"))) == 9
    assert starter.running == 0
    assert run_study(Toy(tmp_path / "ledger"), SMALL, folder=tmp_path / "run", serve=Starter()).complete == 48


def test_a_broken_equality_stops_the_run_and_both_sides_are_shown_and_kept(tmp_path: Path) -> None:
    def unequal(spec: TrialSpec, context: TrialContext[Path]) -> None:
        if context.arm.name == "clock" and context.attempt == 1:
            raise InequalityError("cached tokens of call 3", expected="predicted 96", got="reported 80")

    study, starter = Toy(tmp_path / "ledger", hook=unequal), Starter()
    with pytest.raises(InequalityError, match=r"clock.*call 3.*predicted 96.*reported 80"):
        run_study(study, TINY, folder=tmp_path / "run", serve=starter)
    assert starter.running == 0
    (violation,) = read_violations(tmp_path / "run")
    assert (violation.expected, violation.got) == ("predicted 96", "reported 80")
    assert not [r for r in read_records(tmp_path / "run") if r.arm == "clock"]


def test_a_bug_in_a_study_is_not_taken_for_an_infrastructure_error(tmp_path: Path) -> None:
    study = Toy(tmp_path / "ledger", hook=failing(times=9, error=lambda: KeyError("bug")))
    starter = Starter()
    with pytest.raises(KeyError, match="bug"):
        run_study(study, TINY, folder=tmp_path / "run", serve=starter)
    assert starter.running == 0


def test_ctrl_c_keeps_what_is_done_stops_the_engine_and_says_how_to_go_on(tmp_path: Path) -> None:
    seen = Counter[str]()

    def stop(spec: TrialSpec, context: TrialContext[Path]) -> None:
        seen["trials"] += 1
        if seen["trials"] == 6:
            raise KeyboardInterrupt

    starter = Starter()
    options = RunOptions(resume_command="ctxlab run toy --out here")
    with pytest.raises(
        StoppedError, match=r"Interrupted after 5 of 48 trials.*ctxlab run toy --out here"
    ) as caught:
        run_study(
            Toy(tmp_path / "ledger", hook=stop),
            SMALL,
            folder=tmp_path / "run",
            serve=starter,
            options=options,
        )
    assert caught.value.exit_code == 130
    assert starter.running == 0
    told = Told()
    done = run_study(Toy(tmp_path / "ledger"), SMALL, folder=tmp_path / "run", serve=Starter(), progress=told)
    assert done.complete == 48
    assert any("5 of 48 trials are in" in note for note in told.notes)
    assert Counter(r.attempt for r in read_records(tmp_path / "run")) == {1: 47, 2: 1}
    assert len(read_run(tmp_path / "run").sessions) == 2


def test_an_undeclared_difference_is_refused_before_anything_starts(tmp_path: Path) -> None:
    study, starter = Toy(tmp_path / "ledger"), Starter()
    study.declared = frozenset({"engine.block_size", "harness.rebuild"})
    with pytest.raises(UsageError, match=r"fault\.clock"):
        run_study(study, TINY, folder=tmp_path / "run", serve=starter)
    assert starter.started == []
    assert not (tmp_path / "run").exists()


def test_chosen_arms_run_alone_and_must_hold_the_null_arm(tmp_path: Path) -> None:
    study = Toy(tmp_path / "ledger")
    done = run_study(
        study, TINY, folder=tmp_path / "run", serve=Starter(), options=RunOptions(arms=("null", "clock"))
    )
    assert done.planned == 4
    with pytest.raises(UsageError, match="null arm"):
        run_study(study, TINY, folder=tmp_path / "x", serve=Starter(), options=RunOptions(arms=("clock",)))
    with pytest.raises(UsageError, match="'clok'"):
        run_study(study, TINY, folder=tmp_path / "y", serve=Starter(), options=RunOptions(arms=("clok",)))


def test_another_seed_or_size_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    study = Toy(tmp_path / "ledger")
    run_study(study, TINY, folder=tmp_path / "run", serve=Starter())
    with pytest.raises(UsageError, match="seed was 0, now 1"):
        run_study(study, TINY, folder=tmp_path / "run", serve=Starter(), options=RunOptions(seed=1))
    with pytest.raises(UsageError, match=r'size\.name was "tiny", now "small"'):
        run_study(study, SMALL, folder=tmp_path / "run", serve=Starter())
