"""One pass over the trials that are left: engines, attempts, records, and when to stop."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass
from threading import Event, Lock
from typing import Generic

from experiments.framework.engine_slot import EngineSlot, Filled
from experiments.framework.eta import Eta
from experiments.framework.failures import INFRASTRUCTURE, InequalityError, failed_by_machinery
from experiments.framework.provenance import utc_now
from experiments.framework.records import RECORDS, RunFolder, Violation
from experiments.framework.schedule import Trial, by_engine, cache_salt, run_salt, scenario_salt
from experiments.framework.study import SaltScope, Serve, Study, TargetT, TrialContext
from experiments.framework.trials import OutcomeKind, TrialOutcome, TrialRecord, prove_cache_state
from serving.errors import LabError
from serving.progress import Progress


@dataclass(frozen=True)
class Limits:
    """When the machinery's failures end a trial, and when they end the run."""

    max_attempts: int = 3
    """Attempts at one trial in one session before it is left for the next."""
    give_up_after: int = 3
    """Trials in a row that the machinery may fail before the run stops: the server is gone."""


class Executor(Generic[TargetT]):
    """Runs trials into a run folder; one object for one session."""

    def __init__(
        self,
        study: Study[TargetT],
        run: RunFolder,
        *,
        session: int,
        serve: Serve[TargetT],
        limits: Limits,
        progress: Progress,
    ) -> None:
        self._study, self._run, self._session = study, run, session
        self._serve, self._limits, self._progress = serve, limits, progress
        self._lock, self._stopping = Lock(), Event()
        self._failed_in_a_row = 0
        self.failed_attempts = 0
        """Attempts of this session that the machinery failed."""

    def run(self, pending: Sequence[Trial]) -> None:
        """Run the trials in their order, one engine a group; see `run_study` for what it raises."""
        eta = Eta(len(pending), self._progress)
        for engine, group in by_engine(pending):
            with EngineSlot(self._serve, engine, self._run) as slot:
                names = sorted({trial.arm.name for trial in group})
                stage = f"{self._study.name}: {', '.join(names) if len(names) < 4 else f'{len(names)} arms'}"
                self._progress.begin(stage, total=len(group), unit="trials")
                with closing(self._each(group, slot)) as ended:  # closed before the engine, whatever happens
                    for _ in ended:
                        self._progress.advance(1)
                        eta.tick()
                self._progress.end()

    def _each(self, group: Sequence[Trial], slot: EngineSlot[TargetT]) -> Generator[None, None, None]:
        """Run a group and yield once for every trial that ended."""
        if self._study.concurrency == 1:
            for trial in group:
                self._run_trial(trial, slot)
                yield
            return
        with ThreadPoolExecutor(self._study.concurrency) as pool:
            try:
                futures = [pool.submit(self._run_trial, trial, slot) for trial in group]
                for future in as_completed(futures):
                    future.result()
                    yield
            except BaseException as error:
                # Trials in flight end and are kept, queued ones return at once; leaving the pool waits.
                self._stopping.set()
                if isinstance(error, KeyboardInterrupt):
                    self._say("stopping: trials in flight end first and are kept; once more stops at once")
                raise

    def _run_trial(self, trial: Trial, slot: EngineSlot[TargetT]) -> None:
        for turn in range(self._limits.max_attempts):
            if self._stopping.is_set():
                return
            filled = slot.filled
            if self._attempt(trial, filled):
                with self._lock:
                    self._failed_in_a_row = 0
                return
            if self._stopping.is_set():
                return  # the engine is being ended, and must not be taken for dead
            cause = slot.mend(filled)
            if cause is not None:
                self._say(f"the engine was restarted, what it was doing is done again. {cause}")
            elif turn == 1 and self._study.concurrency == 1 and slot.filled is filled:
                slot.restart()  # two failures in a row: a hiccup is less likely than a server that hangs
        with self._lock:
            self._failed_in_a_row += 1
            failed = self._failed_in_a_row
        if failed >= self._limits.give_up_after:
            raise LabError(
                f"The machinery failed {failed} trials in a row, {self._limits.max_attempts} attempts each, "
                f"last {trial.id}; see kind infrastructure_error in {self._run.path / RECORDS}, mend it and "
                "run the same command again."
            )

    def _attempt(self, trial: Trial, engine: Filled[TargetT]) -> bool:
        """Make one attempt, keep its record, and say whether it is scored."""
        attempt = self._run.begin_attempt(trial.id)
        salt = self._salt(trial, attempt)
        context = TrialContext(
            arm=trial.arm, factors=trial.factors, target=engine.served.target, salt=salt, attempt=attempt
        )
        started, clock = utc_now(), time.monotonic()
        kind, outcome = self._judge(trial, context)
        record = TrialRecord(
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
            environment=engine.environment,
            started=started,
            seconds=round(time.monotonic() - clock, 6),
            kind=kind,
            outcome=outcome.outcome,
            cache=prove_cache_state(outcome.calls),
            measures=outcome.measures,
            calls=outcome.calls,
            exchanges=outcome.exchanges,
        )
        self._run.append(record, outcome.manifests)
        if not record.scored:
            with self._lock:
                self.failed_attempts += 1
            self._say(f"{trial.id}, attempt {attempt}: {outcome.outcome}")
        return record.scored

    def _say(self, sentence: str) -> None:
        with self._lock:
            self._progress.note(sentence)

    def _judge(self, trial: Trial, context: TrialContext[TargetT]) -> tuple[OutcomeKind, TrialOutcome]:
        try:
            outcome = self._study.run_trial(trial.spec, context)
        except INFRASTRUCTURE as error:
            return OutcomeKind.INFRASTRUCTURE_ERROR, TrialOutcome(outcome=f"{type(error).__name__}: {error}")
        except InequalityError as error:
            self._run.note_violation(
                Violation(
                    trial=trial.id,
                    attempt=context.attempt,
                    what=error.what,
                    expected=error.expected,
                    got=error.got,
                )
            )
            raise InequalityError(
                f"Trial {trial.id}, attempt {context.attempt}: {error.what}",
                expected=error.expected,
                got=error.got,
            ) from error
        failure = failed_by_machinery(outcome.exchanges)
        if failure is not None:
            # A study that looks at the answers only would score an empty one as a wrong one.
            words = f"{failure.kind}: {failure.sentence}"
            return OutcomeKind.INFRASTRUCTURE_ERROR, outcome.model_copy(
                update={"outcome": words, "measures": {}}
            )
        return OutcomeKind.OK if outcome.succeeded else OutcomeKind.TASK_FAILED, outcome

    def _salt(self, trial: Trial, attempt: int) -> str:
        run_id = self._run.info.run_id
        match self._study.salt_scope:
            case SaltScope.RUN:
                return run_salt(run_id)
            case SaltScope.SCENARIO:
                return scenario_salt(run_id, trial.spec)
            case SaltScope.ATTEMPT:
                return cache_salt(run_id, trial.id, attempt)
