"""Runs a study into a folder: one engine a group, each trial once, whatever interrupts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from experiments.framework.arms import Arm, ArmDiff
from experiments.framework.executor import Executor, Limits
from experiments.framework.failures import StoppedError
from experiments.framework.provenance import this_session
from experiments.framework.records import RunFolder, RunIdentity, read_records
from experiments.framework.schedule import schedule
from experiments.framework.study import Serve, Size, Study, TargetT, check_study, plan_digest
from serving.errors import UsageError
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
    limits: Limits = field(default_factory=Limits)
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
    identity, diff = identify(study, size, options)
    trials = schedule(study.base, identity.arms, study.plan(size), options.seed, study.applies)
    with RunFolder.open(folder, identity, diff) as run:
        pending = [trial for trial in trials if not run.is_complete(trial.id)]
        failed = 0
        if pending:
            session = run.begin_session(this_session(dict(options.machine or {})))
            progress = progress or Silent()
            _tell(run, len(trials), len(pending), progress)
            work = Executor(
                study, run, session=session, serve=serve, limits=options.limits, progress=progress
            )
            try:
                work.run(pending)
            except KeyboardInterrupt:
                done = sum(run.is_complete(trial.id) for trial in trials)
                raise StoppedError(_resume_sentence(folder, done, len(trials), options)) from None
            failed = work.failed_attempts
        complete = sum(run.is_complete(trial.id) for trial in trials)
        if complete == len(trials):
            study.verify(record for record in read_records(folder) if record.scored)
    return RunSummary(folder=folder, planned=len(trials), complete=complete, failed_attempts=failed)


def identify(study: Study[TargetT], size: Size, options: RunOptions) -> tuple[RunIdentity, ArmDiff]:
    """What a run of this study is, and the diff of its arms; `UsageError` for what would not be comparable."""
    arms = _chosen(study.arms, options.arms)
    diff = check_study(study, arms)
    plan = study.plan(size)
    identity = RunIdentity(
        study=study.name,
        size=size,
        arguments=dict(options.arguments or {}),
        seed=options.seed,
        base=dict(study.base),
        arms=arms,
        declared=tuple(sorted(study.declared)),
        plan_sha256=plan_digest(plan),
        trials=sum(study.applies(arm, spec) for arm in arms for spec in plan),
        model=dict(options.model or {}),
        salt_scope=study.salt_scope,
        concurrency=study.concurrency,
    )
    return identity, diff


def _tell(run: RunFolder, planned: int, pending: int, progress: Progress) -> None:
    for line in run.info.diff.to_text().splitlines():
        progress.note(line)
    if not pending:
        progress.note(f"all {planned} trials are in {run.path} already; a new run needs another folder")
    elif pending < planned:
        progress.note(f"{planned - pending} of {planned} trials are in {run.path} already")
    first, now = run.info.sessions[0].code, run.info.sessions[-1].code
    if now.revision != first.revision:
        progress.note(f"the run began at revision {first.revision} and goes on at {now.revision}")


def _chosen(arms: Sequence[Arm], names: Sequence[str]) -> tuple[Arm, ...]:
    known = {arm.name for arm in arms}
    for name in names:
        if name not in known:
            raise UsageError(f"There is no arm {name!r}; choose among {', '.join(sorted(known))}.")
    return tuple(arm for arm in arms if not names or arm.name in names)


def _resume_sentence(folder: Path, done: int, planned: int, options: RunOptions) -> str:
    again = options.resume_command or f"run the same command with the folder {folder}"
    return f"Interrupted after {done} of {planned} trials; nothing is lost. To go on: {again}"
