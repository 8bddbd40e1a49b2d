"""Runs a study into a folder: one engine a group, each trial once, whatever interrupts it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Generic

from pydantic import JsonValue

from experiments.framework.arms import Arm
from experiments.framework.failures import (
    INFRASTRUCTURE,
    InequalityError,
    StoppedError,
    failed_by_machinery,
)
from experiments.framework.provenance import this_session, utc_now
from experiments.framework.records import RECORDS, RunFolder, RunIdentity, Violation
from experiments.framework.schedule import Trial, by_engine, cache_salt, schedule
from experiments.framework.study import (
    Serve,
    Size,
    Study,
    TargetT,
    TrialContext,
    check_study,
    plan_digest,
)
from experiments.framework.trials import OutcomeKind, TrialOutcome, TrialRecord, prove_cache_state
from serving.errors import LabError, UsageError
from serving.progress import Progress, Silent


@dataclass(frozen=True)
class RunOptions:
    """What a person may choose beyond the study itself; all but the limits are part of the run's identity."""

    arms: tuple[str, ...] = ()
    """Names of the arms to run; none given means all."""
    seed: int = 0
    arguments: Mapping[str, JsonValue] | None = None
    model: Mapping[str, JsonValue] | None = None
    machine: Mapping[str, JsonValue] | None = None
    max_attempts: int = 3
    """Attempts at one trial in one session before it is left for the next."""
    give_up_after: int = 3
    """Trials in a row that the machinery may fail before the run stops: the server is gone."""
    resume_command: str | None = None
    """Shown when the run is interrupted."""


@dataclass(frozen=True)
class RunSummary:
    """What this session did and what is left."""

    folder: Path
    planned: int
    complete: int
    """Trials with a scored record, earlier sessions included."""
    failed_attempts: int
    """Attempts of this session that the machinery failed."""

    @property
    def unfinished(self) -> int:
        """Trials that every attempt failed for the machinery's sake; run again to try them."""
        return self.planned - self.complete


def run_study(
    study: Study[TargetT],
    size: Size,
    *,
    folder: Path,
    serve: Serve[TargetT],
    options: RunOptions = RunOptions(),
    progress: Progress | None = None,
) -> RunSummary:
    """Run every trial of every arm that the folder does not have yet, and return what is done.

    Raises `UsageError` before any engine starts (undeclared difference, other arguments, folder in use),
    `InequalityError` at the first broken equality, `StoppedError` on Ctrl-C, and `LabError` when the
    machinery fails several trials in a row or the disk refuses. After each of them the folder can be resumed.
    """
    arms = _chosen(study.arms, options.arms)
    diff = check_study(study, arms)
    plan = study.plan(size)
    trials = schedule(study.base, arms, plan, options.seed)
    identity = RunIdentity(
        study=study.name,
        size=size,
        arguments=dict(options.arguments or {}),
        seed=options.seed,
        base=dict(study.base),
        arms=arms,
        declared=tuple(sorted(study.declared)),
        plan_sha256=plan_digest(plan),
        trials=len(trials),
        model=dict(options.model or {}),
    )
    with RunFolder.open(folder, identity, diff) as run:
        pending = [trial for trial in trials if not run.is_complete(trial.id)]
        failed = 0
        if pending:
            session = run.begin_session(this_session(dict(options.machine or {})))
            work = _Session(study, run, session, serve, options, progress or Silent())
            work.tell_start(len(trials), len(pending))
            try:
                work.run(pending)
            except KeyboardInterrupt:
                done = sum(run.is_complete(trial.id) for trial in trials)
                raise StoppedError(_resume_sentence(folder, done, len(trials), options)) from None
            failed = work.failed_attempts
        complete = sum(run.is_complete(trial.id) for trial in trials)
    return RunSummary(folder=folder, planned=len(trials), complete=complete, failed_attempts=failed)


class _Session(Generic[TargetT]):
    """One pass over the trials that are left."""

    def __init__(
        self,
        study: Study[TargetT],
        run: RunFolder,
        session: int,
        serve: Serve[TargetT],
        options: RunOptions,
        progress: Progress,
    ) -> None:
        self._study, self._run, self._session = study, run, session
        self._serve, self._options, self._progress = serve, options, progress
        self._failed_in_a_row = 0
        self.failed_attempts = 0

    def tell_start(self, planned: int, pending: int) -> None:
        if pending < planned:
            self._progress.note(f"{planned - pending} of {planned} trials are in {self._run.path} already")
        first = self._run.info.sessions[0].code
        now = self._run.info.sessions[self._session].code
        if now.revision != first.revision:
            self._progress.note(f"the run began at revision {first.revision} and goes on at {now.revision}")

    def run(self, pending: Sequence[Trial]) -> None:
        clock = _Clock(len(pending), self._progress)
        for engine, group in by_engine(pending):
            with _Engine(self._serve, engine, self._run) as held:
                names = sorted({trial.arm.name for trial in group})
                stage = f"{self._study.name}: {len(names)} arms" if len(names) > 3 else ", ".join(names)
                self._progress.begin(stage, total=len(group), unit="trials")
                for trial in group:
                    self._run_trial(trial, held)
                    self._progress.advance(1)
                    clock.tick()
                self._progress.end()

    def _run_trial(self, trial: Trial, held: _Engine[TargetT]) -> None:
        for turn in range(self._options.max_attempts):
            if turn >= 2:
                held.restart()  # two failures in a row: a hiccup is less likely than a dead server
            if self._attempt(trial, held):
                self._failed_in_a_row = 0
                return
        self._failed_in_a_row += 1
        if self._failed_in_a_row >= self._options.give_up_after:
            raise LabError(
                f"The machinery failed {self._failed_in_a_row} trials in a row, {self._options.max_attempts} "
                f"attempts each, last {trial.id}; see kind infrastructure_error in "
                f"{self._run.path / RECORDS}, mend it and run the same command again."
            )

    def _attempt(self, trial: Trial, held: _Engine[TargetT]) -> bool:
        attempt = self._run.begin_attempt(trial.id)
        salt = cache_salt(self._run.info.run_id, trial.id, attempt)
        context = TrialContext(
            arm=trial.arm, factors=trial.factors, target=held.target, salt=salt, attempt=attempt
        )
        started, clock = utc_now(), time.monotonic()
        kind = OutcomeKind.INFRASTRUCTURE_ERROR
        try:
            outcome = self._study.run_trial(trial.spec, context)
            failure = failed_by_machinery(outcome.exchanges)
            if failure is not None:
                # A study that looks at the answers only would score an empty one as a wrong one.
                outcome = outcome.model_copy(update={"outcome": f"{failure.kind}: {failure.sentence}"})
            else:
                kind = OutcomeKind.OK if outcome.succeeded else OutcomeKind.TASK_FAILED
        except INFRASTRUCTURE as error:
            outcome = TrialOutcome(outcome=f"{type(error).__name__}: {error}", succeeded=False)
        except InequalityError as error:
            self._run.note_violation(
                Violation(
                    trial=trial.id, attempt=attempt, what=error.what, expected=error.expected, got=error.got
                )
            )
            raise InequalityError(
                f"Trial {trial.id}, attempt {attempt}: {error.what}", expected=error.expected, got=error.got
            ) from error
        if kind is OutcomeKind.INFRASTRUCTURE_ERROR:
            self.failed_attempts += 1
            self._progress.note(f"{trial.id}, attempt {attempt}: {outcome.outcome}")
        self._run.append(
            TrialRecord(
                study=self._study.name,
                arm=trial.arm.name,
                factors=dict(trial.factors),
                task=trial.spec.task,
                seed=trial.spec.seed,
                repeat=trial.spec.repeat,
                order_index=trial.order_index,
                attempt=attempt,
                salt=salt,
                session=self._session,
                environment=held.environment,
                started=started,
                seconds=round(time.monotonic() - clock, 6),
                kind=kind,
                outcome=outcome.outcome,
                cache=prove_cache_state(outcome.calls),
                measures=outcome.measures,
                calls=outcome.calls,
                exchanges=outcome.exchanges,
            )
        )
        return kind is not OutcomeKind.INFRASTRUCTURE_ERROR


class _Engine(Generic[TargetT]):
    """The engine of one group; `restart` stops it and starts another of the same factors."""

    def __init__(self, serve: Serve[TargetT], factors: Mapping[str, JsonValue], run: RunFolder) -> None:
        self._serve, self._factors, self._run = serve, factors, run
        self._stack = ExitStack()
        self._start()

    def __enter__(self) -> _Engine[TargetT]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def restart(self) -> None:
        self._stack.close()
        self._start()

    def _start(self) -> None:
        with ExitStack() as starting:
            served = starting.enter_context(self._serve(self._factors))
            self.target = served.target
            self.environment = self._run.note_environment(self._factors, served.environment)
            self._stack = starting.pop_all()


class _Clock:
    """Says how long the rest will take, about ten times a run."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._total, self._progress = total, progress
        self._begun, self._done = time.monotonic(), 0

    def tick(self) -> None:
        before, self._done = self._done, self._done + 1
        if self._done < self._total and self._done * 10 // self._total > before * 10 // self._total:
            left = (time.monotonic() - self._begun) / self._done * (self._total - self._done)
            self._progress.note(f"{self._done} of {self._total} trials, about {in_words(left)} left")


def in_words(seconds: float) -> str:
    """Give a duration as a person says it: "40 s", "12 min", "1 h 5 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _chosen(arms: Sequence[Arm], names: Sequence[str]) -> tuple[Arm, ...]:
    known = {arm.name for arm in arms}
    for name in names:
        if name not in known:
            raise UsageError(f"There is no arm {name!r}; choose among {', '.join(sorted(known))}.")
    return tuple(arm for arm in arms if not names or arm.name in names)


def _resume_sentence(folder: Path, done: int, planned: int, options: RunOptions) -> str:
    again = options.resume_command or f"run the same command with the folder {folder}"
    return f"Interrupted after {done} of {planned} trials; nothing is lost. To go on: {again}"
