"""A study: one question, arms, a plan of trials, how one trial runs, and what the records say."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, PositiveInt

from experiments.framework.analysis import Analysis
from experiments.framework.arms import Arm, ArmDiff, canonical, check_declared, diff_arms, resolve
from experiments.framework.trials import TrialOutcome, TrialRecord, TrialSpec
from serving.errors import UsageError

TargetT = TypeVar("TargetT")
"""What a trial talks to: a base URL, a client with a renderer, or nothing at all for a toy."""


class Size(BaseModel):
    """How much of a study to run; a study gives its own numbers for `quick` and `full`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    tasks: PositiveInt
    seeds: PositiveInt
    repeats: PositiveInt = 1

    def each(self, tasks: Iterable[str]) -> tuple[TrialSpec, ...]:
        """Every task before the next seed, and every seed before the next repeat: a run cut short has all tasks."""
        names = tuple(tasks)
        return tuple(
            TrialSpec(task=task, seed=seed, repeat=repeat)
            for repeat in range(self.repeats)
            for seed in range(self.seeds)
            for task in names
        )


@dataclass(frozen=True)
class Served(Generic[TargetT]):
    """A started engine: the target for trials, and the facts that must not change during the run."""

    target: TargetT
    environment: Mapping[str, JsonValue]
    """Engine version, flags, machine: nothing that varies between two starts (no port, no pid)."""
    death: Callable[[], str | None] | None = None
    """Tells in a sentence why the engine has died, or None while it lives; None where nobody can tell."""


Serve = Callable[[Mapping[str, JsonValue]], AbstractContextManager[Served[TargetT]]]
"""Starts an engine for the given `engine.*` factors and stops it on exit."""


@dataclass(frozen=True)
class TrialContext(Generic[TargetT]):
    """What one attempt may use; the salt is its own, so nothing earlier can be met in the cache."""

    arm: Arm
    factors: Mapping[str, JsonValue]
    """Base and arm resolved: read every setting from here."""
    target: TargetT
    salt: str
    attempt: int


class SaltScope(StrEnum):
    """What a cache salt separates."""

    ATTEMPT = "attempt"
    """Every attempt meets an empty cache: the rule wherever cost is measured."""
    SCENARIO = "scenario"
    """All arms of one task and seed share a prefix: for behaviour only, where it saves hours of prefill."""
    RUN = "run"
    """All trials of a run share a prefix, such as a long head of tools: for behaviour only, as above."""


class Study(ABC, Generic[TargetT]):
    """The base of every study: subclass it in one file, set the attributes, write three methods.

    `run_trial` raises `InfrastructureError` (or a connection or timeout error) when the machinery failed
    and `InequalityError` when two numbers that must agree do not.
    """

    name: str
    title: str
    question: str
    base: Mapping[str, JsonValue]
    """Every factor of the study with its usual value."""
    declared: frozenset[str]
    """Factor paths in which arms may differ."""
    arms: tuple[Arm, ...]
    null_arm: str
    """The arm that rebuilds the same bytes: its effect is the noise of the measurement."""
    sizes: tuple[Size, ...]
    salt_scope: SaltScope = SaltScope.ATTEMPT
    concurrency: int = 1
    """Trials at once, in threads; above 1 for behaviour only: parallel trials share cores and batch."""

    def plan(self, size: Size) -> tuple[TrialSpec, ...]:
        """List the trials that every arm repeats: repeats outermost, so that drift hits all tasks alike."""
        return tuple(
            TrialSpec(task=f"task-{task}", seed=seed, repeat=repeat)
            for repeat in range(size.repeats)
            for task in range(size.tasks)
            for seed in range(size.seeds)
        )

    def applies(self, arm: Arm, spec: TrialSpec) -> bool:
        """Whether an arm has a meaning for a planned trial; what has none is not run and not counted."""
        return True

    @abstractmethod
    def run_trial(self, spec: TrialSpec, context: TrialContext[TargetT]) -> TrialOutcome:
        """Run one trial; the same spec, factors and target must give the same work."""

    def verify(self, records: Iterable[TrialRecord]) -> None:
        """Raise `InequalityError` where two trials that must agree do not; called when a run is complete."""

    @abstractmethod
    def analyse(self, records: Sequence[TrialRecord]) -> Analysis:
        """Conclude from scored records (their exchanges stay on disk: use `measures` and `calls`)."""


def size_named(sizes: Sequence[Size], name: str) -> Size:
    """Find a size by its name or say which there are."""
    for size in sizes:
        if size.name == name:
            return size
    raise UsageError(f"There is no size {name!r}; choose one of {', '.join(size.name for size in sizes)}.")


def check_study(study: Study[TargetT], arms: Sequence[Arm]) -> ArmDiff:
    """Compute the diff of `arms` and refuse what would make them incomparable; the diff is the treatment."""
    names = [arm.name for arm in arms]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"Study {study.name!r} has two arms named {twice[0]!r}; a name means one arm.")
    if study.null_arm not in names:
        raise UsageError(
            f"Study {study.name!r} runs without its null arm {study.null_arm!r}; without it no effect can be "
            f"told from noise. Arms chosen: {', '.join(names) or 'none'}."
        )
    unknown = sorted(study.declared - set(study.base))
    if unknown:
        raise UsageError(f"Study {study.name!r} declares {unknown[0]!r}, which its base does not have.")
    if study.concurrency < 1:
        raise UsageError(
            f"Study {study.name!r} runs {study.concurrency} trials at once; it takes at least 1."
        )
    diff = diff_arms(study.base, arms)
    check_declared(diff, study.declared)
    _check_twins(study, arms)
    return diff


def plan_digest(plan: Sequence[TrialSpec]) -> str:
    """Hash a plan, so that a resumed run is known to have the same trials."""
    text = canonical([spec.model_dump(mode="json") for spec in plan])
    return hashlib.sha256(text.encode()).hexdigest()


def _check_twins(study: Study[TargetT], arms: Sequence[Arm]) -> None:
    seen: dict[str, str] = {}
    for arm in arms:
        if arm.name == study.null_arm:
            continue  # an A/A arm is the one twin that has a meaning
        factors = canonical(resolve(study.base, arm))
        if factors in seen:
            raise UsageError(
                f"Arms {seen[factors]!r} and {arm.name!r} of study {study.name!r} have the same factors; "
                "only the null arm may repeat another one."
            )
        seen[factors] = arm.name
