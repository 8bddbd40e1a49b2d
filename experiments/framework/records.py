"""A run is a folder: what was asked, which program and engine answered, one line a trial."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Lock
from typing import Final

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from experiments.framework.arms import Arm, ArmDiff, canonical, same_value
from experiments.framework.journal import Journal, read_lines, write_whole
from experiments.framework.manifests import MANIFESTS, ManifestJournal
from experiments.framework.packed import Packing
from experiments.framework.provenance import Session, utc_now
from experiments.framework.schedule import trial_id
from experiments.framework.study import SaltScope, Size
from experiments.framework.trials import OutcomeKind, TrialRecord, TrialSpec
from serving.assembler import ContextManifest
from serving.errors import LabError, UsageError

SCHEMA_VERSION: Final = 1
RUN, RECORDS, ATTEMPTS, VIOLATIONS, LOCK = (
    "run.json",
    "records.jsonl",
    "attempts.jsonl",
    "violations.jsonl",
    "lock",
)


class RunIdentity(BaseModel):
    """What was asked; a folder is resumed only by the very same question."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    study: str
    size: Size
    arguments: dict[str, JsonValue]
    """What the person chose on the command line, beyond the size."""
    seed: int
    """Shuffles the order of engines and arms."""
    base: dict[str, JsonValue]
    arms: tuple[Arm, ...]
    declared: tuple[str, ...]
    plan_sha256: str
    trials: int
    model: dict[str, JsonValue]
    """What the caller knows of the model beforehand; `environments` holds what was really served."""
    salt_scope: SaltScope
    concurrency: int


class Environment(BaseModel):
    """One engine of the run: the factors that asked for it and what was started."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: dict[str, JsonValue]
    facts: dict[str, JsonValue]


class RunInfo(BaseModel):
    """The content of run.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int
    run_id: str
    created: str
    identity: RunIdentity
    diff: ArmDiff
    sessions: tuple[Session, ...] = ()
    environments: dict[str, Environment] = {}


class Violation(BaseModel):
    """One line of violations.jsonl: two sides that had to be equal, and the attempt that met them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    trial: str
    attempt: int
    what: str
    expected: str
    got: str


class RunFolder:
    """A run folder held by this process alone; open it with `RunFolder.open`."""

    def __init__(
        self,
        path: Path,
        info: RunInfo,
        journals: tuple[Journal, Journal, Journal],
        manifests: ManifestJournal,
    ) -> None:
        self.path = path
        self._info = info
        self._lock = Lock()  # trials may end in several threads
        self._records, self._attempts, self._violations = journals
        self._manifests = manifests
        self._complete = {
            key
            for key, kind in _keys(path / RECORDS, info.identity.study)
            if kind is not OutcomeKind.INFRASTRUCTURE_ERROR
        }
        self._packing = _packing_of(path / RECORDS)
        self._tries: dict[str, int] = {}
        for line in read_lines(path / ATTEMPTS):
            self._count(line)

    @staticmethod
    @contextmanager
    def open(path: Path, identity: RunIdentity, diff: ArmDiff) -> Iterator[RunFolder]:
        """Create the folder, or take up an interrupted run of the same identity.

        A new folder whose run fails before its first trial is taken away again: nothing is in it. Raises
        `UsageError` when another process holds it, when it belongs to other arguments (naming each that differs)
        and when it holds something that is not a run.
        """
        was_there = path.exists()
        path.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            stack.enter_context(_exclusive(path))
            if (path / RUN).exists():
                info = _take_up(path, identity)
            else:
                info = _create(path, identity, diff)
                stack.enter_context(_gone_if_untried(path, keep=was_there))
            journals = (
                stack.enter_context(Journal(path / RECORDS)),
                stack.enter_context(Journal(path / ATTEMPTS)),
                stack.enter_context(Journal(path / VIOLATIONS)),
            )
            manifests = ManifestJournal(stack.enter_context(Journal(path / MANIFESTS)))
            yield RunFolder(path, info, journals, manifests)

    @property
    def info(self) -> RunInfo:
        """The run as written in run.json."""
        return self._info

    def is_complete(self, trial: str) -> bool:
        """Whether a scored record of this trial is on the disk."""
        return trial in self._complete

    def begin_session(self, session: Session) -> int:
        """Note one start of the program and give its index."""
        self._write(self._info.model_copy(update={"sessions": (*self._info.sessions, session)}))
        return len(self._info.sessions) - 1

    def note_environment(self, engine: Mapping[str, JsonValue], facts: Mapping[str, JsonValue]) -> str:
        """Keep what was started for these engine factors, and give its id.

        Raises `LabError` when the same factors brought another engine earlier in this run: its trials could
        not be compared with the new ones.
        """
        environment = Environment(engine=dict(engine), facts=dict(facts))
        name = hashlib.sha256(canonical(environment.model_dump(mode="json")).encode()).hexdigest()[:12]
        for known in self._info.environments.values():
            if known.engine == environment.engine and known.facts != environment.facts:
                raise LabError(
                    f"The engine of {self.path} is not the one it began with: "
                    f"{_differences(known.facts, environment.facts)}. Bring the old one back or start a new "
                    "folder."
                )
        if name not in self._info.environments:
            environments = {**self._info.environments, name: environment}
            self._write(self._info.model_copy(update={"environments": environments}))
        return name

    def begin_attempt(self, trial: str) -> int:
        """Number an attempt, on the disk before its salt is used: a killed one keeps its number."""
        with self._lock:
            attempt = self._tries.get(trial, 0) + 1
            self._attempts.append({"trial": trial, "attempt": attempt, "at": utc_now()})
            self._tries[trial] = attempt
            return attempt

    def append(self, record: TrialRecord, manifests: Iterable[ContextManifest] = ()) -> None:
        """Keep an attempt that ended and the manifests of its calls; a second scored record is refused."""
        trial = trial_id(record.arm, record.spec)
        with self._lock:
            if trial in self._complete:
                raise LabError(f"Trial {trial} of {self.path} has its record already; a second one is a bug.")
            self._manifests.keep(manifests)
            line: dict[str, JsonValue] = record.model_dump(mode="json")
            exchanges = json.dumps(line["exchanges"], separators=(",", ":"))
            self._records.append({**line, "exchanges": self._packing.pack(exchanges)})
            self._packing.stands(exchanges)
            if record.scored:
                self._complete.add(trial)

    def note_violation(self, violation: Violation) -> None:
        """Keep both sides of a broken equality."""
        with self._lock:
            self._violations.append(violation.model_dump(mode="json"))

    def _count(self, line: JsonValue) -> None:
        match line:
            case {"trial": str(trial), "attempt": int(attempt)}:
                self._tries[trial] = max(attempt, self._tries.get(trial, 0))
            case _:
                raise LabError(f"{self.path / ATTEMPTS} has a line that is not an attempt: {line!r:.200}.")

    def _write(self, info: RunInfo) -> None:
        _write_run(self.path, info)
        self._info = info


def read_run(path: Path) -> RunInfo:
    """Read run.json; needs no lock."""
    file = path / RUN
    if not file.exists():
        raise UsageError(f"{path} is not a run folder: it has no {RUN}.")
    try:
        raw = json.loads(file.read_bytes())
        found = raw.get("schema_version") if isinstance(raw, dict) else None
        if found != SCHEMA_VERSION:
            raise UsageError(
                f"{file} has schema {found}, this program reads {SCHEMA_VERSION}; use the one that wrote it."
            )
        return RunInfo.model_validate(raw)
    except (ValueError, ValidationError) as error:
        raise LabError(f"{file} cannot be read: {first_problem(error)}.") from error


def read_records(path: Path, *, with_exchanges: bool = True) -> Iterator[TrialRecord]:
    """Yield the records of a run in the order they ended, scored or not; needs no lock.

    `with_exchanges=False` leaves the exchanges on the disk: they are most of the bytes, and an analysis works
    from measures and calls.
    """
    packing = Packing() if with_exchanges else None
    for number, line in enumerate(read_lines(path / RECORDS), start=1):
        try:
            yield _record_of(line, packing)
        except ValueError as error:
            raise LabError(
                f"Line {number} of {path / RECORDS} is not a trial record: {first_problem(error)}."
            ) from error


def read_violations(path: Path) -> tuple[Violation, ...]:
    """Read the broken equalities of a run; none is the usual case."""
    try:
        return tuple(Violation.model_validate(line) for line in read_lines(path / VIOLATIONS))
    except ValidationError as error:
        raise LabError(
            f"{path / VIOLATIONS} has a line that is no violation: {first_problem(error)}."
        ) from error


def first_problem(error: ValueError) -> str:
    """The first thing that is wrong, in one line: pydantic's own text has many."""
    if not isinstance(error, ValidationError):
        return str(error)
    problem = error.errors()[0]
    return f"{'.'.join(map(str, problem['loc'])) or 'the value'}: {problem['msg']}"


def count_attempts(path: Path) -> int:
    """Count every attempt that began, killed ones included."""
    return sum(1 for _ in read_lines(path / ATTEMPTS))


def _record_of(line: JsonValue, packing: Packing | None) -> TrialRecord:
    """The record of a line, without exchanges where there is no packing; `ValueError` for no record.

    In the earliest runs exchanges are not packed.
    """
    if isinstance(line, dict):
        if packing is None:
            line["exchanges"] = []
        elif isinstance(kept := line.get("exchanges"), str):
            line["exchanges"] = json.loads(packing.unpack(kept))
    return TrialRecord.model_validate(line)


def _packing_of(path: Path) -> Packing:
    """The packing of a journal that may go on: it has read the first exchanges that are packed there."""
    packing = Packing()
    for number, line in enumerate(read_lines(path), start=1):
        if isinstance(line, dict) and isinstance(kept := line.get("exchanges"), str):
            try:
                packing.unpack(kept)
            except ValueError as error:
                raise LabError(f"Line {number} of {path} is not a trial record: {error}.") from error
            break
    return packing


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise UsageError(
                f"{path} is being run by process {holder}; wait for it, or choose another folder."
            ) from error
        # The kernel drops the lock with the process, however it dies; the number is only for people.
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _gone_if_untried(path: Path, *, keep: bool) -> Iterator[None]:
    """On an error, takes the files away if no trial was begun, and the folder unless `keep`."""
    try:
        yield
    except BaseException:
        if next(iter(read_lines(path / ATTEMPTS)), None) is None:
            for name in (RUN, RECORDS, ATTEMPTS, VIOLATIONS, MANIFESTS, LOCK):
                (path / name).unlink(missing_ok=True)
            if not keep and not any(path.iterdir()):
                path.rmdir()
        raise


def _create(path: Path, identity: RunIdentity, diff: ArmDiff) -> RunInfo:
    others = sorted(entry.name for entry in path.iterdir() if entry.name not in {LOCK, f"{RUN}.tmp"})
    if others:
        raise UsageError(f"{path} is no run folder but holds {others[0]!r}; give an empty or a new folder.")
    info = RunInfo(
        schema_version=SCHEMA_VERSION,
        run_id=uuid.uuid4().hex[:12],
        created=utc_now(),
        identity=identity,
        diff=diff,
    )
    _write_run(path, info)
    return info


def _take_up(path: Path, identity: RunIdentity) -> RunInfo:
    info = read_run(path)
    old, new = info.identity.model_dump(mode="json"), identity.model_dump(mode="json")
    if not same_value(old, new):
        raise UsageError(
            f"{path} was begun with other arguments: {_differences(old, new)}. Give the same ones to go on, "
            "or another folder."
        )
    return info


def _differences(old: Mapping[str, JsonValue], new: Mapping[str, JsonValue], prefix: str = "") -> str:
    parts = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if key in old and key in new and same_value(before, after):
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            parts.append(_differences(before, after, f"{prefix}{key}."))
        else:
            parts.append(f"{prefix}{key} was {canonical(before):.120}, now {canonical(after):.120}")
    return "; ".join(parts)


def _keys(path: Path, study: str) -> Iterator[tuple[str, OutcomeKind]]:
    # Only the key of each line is validated: a resume need not build a hundred thousand ids.
    for number, line in enumerate(read_lines(path), start=1):
        try:
            key = _RecordKey.model_validate(line)
        except ValidationError as error:
            raise LabError(
                f"Line {number} of {path} is not a trial record: {first_problem(error)}."
            ) from error
        if key.study != study:
            raise LabError(f"Line {number} of {path} is of study {key.study!r}, the run of {study!r}.")
        yield trial_id(key.arm, TrialSpec(task=key.task, seed=key.seed, repeat=key.repeat)), key.kind


class _RecordKey(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    study: str
    arm: str
    task: str
    seed: int
    repeat: int
    kind: OutcomeKind


def _write_run(path: Path, info: RunInfo) -> None:
    text = json.dumps(info.model_dump(mode="json"), indent=2, allow_nan=False)
    try:
        write_whole(path / RUN, text.encode("ascii") + b"\n")
    except OSError as error:
        raise LabError(f"Could not write {path / RUN}: {error.strerror}; make room and run again.") from error
