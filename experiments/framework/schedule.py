"""In which order trials run, and the cache salt of each attempt: pure functions of the seed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from pydantic import JsonValue

from experiments.framework.arms import Arm, FactorPrefix, canonical, resolve
from experiments.framework.trials import TrialSpec

SALT_LIMIT = 128
"""Longest `cache_salt` the lab sends."""

_Resolved = tuple[Arm, dict[str, JsonValue]]


@dataclass(frozen=True)
class Trial:
    """One arm on one planned trial, with its place in the order."""

    order_index: int
    arm: Arm
    spec: TrialSpec
    factors: Mapping[str, JsonValue]

    @property
    def id(self) -> str:
        """A name that is unique within the run."""
        return trial_id(self.arm.name, self.spec)

    @property
    def engine(self) -> dict[str, JsonValue]:
        """The factors that need an engine of their own."""
        return engine_factors(self.factors)


def trial_id(arm: str, spec: TrialSpec) -> str:
    """Name a trial; an arm's name has no slash, and the task comes last, so two trials never share one."""
    return f"{arm}/s{spec.seed}/r{spec.repeat}/{spec.task}"


def schedule(
    base: Mapping[str, JsonValue],
    arms: Sequence[Arm],
    plan: Sequence[TrialSpec],
    seed: int,
    applies: Callable[[Arm, TrialSpec], bool] = lambda arm, spec: True,
) -> tuple[Trial, ...]:
    """Order all trials: engines in a seeded order, inside one the plan, and for each spec the arms shuffled.

    A pair that `applies` denies is no trial.

    All arms of one task, seed and repeat run next to each other, so a machine that slows down slows all of
    them. Arms that differ in `engine.*` cannot be neighbours: a restart between every two trials would cost
    more than the drift.
    """
    engines: dict[str, list[_Resolved]] = {}
    for arm in arms:
        factors = resolve(base, arm)
        engines.setdefault(canonical(engine_factors(factors)), []).append((arm, factors))
    ordered = [
        (arm, factors, spec)
        for engine in sorted(engines, key=lambda engine: _rank(seed, "engine", engine))
        for spec in plan
        for arm, factors in _shuffled(engines[engine], seed, spec)
        if applies(arm, spec)
    ]
    return tuple(
        Trial(order_index=index, arm=arm, spec=spec, factors=factors)
        for index, (arm, factors, spec) in enumerate(ordered)
    )


def engine_factors(factors: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Pick the factors that need an engine of their own."""
    return {path: value for path, value in factors.items() if path.startswith(f"{FactorPrefix.ENGINE}.")}


def by_engine(trials: Sequence[Trial]) -> list[tuple[dict[str, JsonValue], tuple[Trial, ...]]]:
    """Cut an ordered list where the engine changes."""
    groups = groupby(trials, key=lambda trial: canonical(trial.engine))
    cut = [tuple(group) for _, group in groups]
    return [(group[0].engine, group) for group in cut]


def cache_salt(run: str, trial: str, attempt: int) -> str:
    """Give run/trial/attempt a form that servers accept, different for every different triple.

    Readable up to a limit, then a digest of the exact triple. `@`, `/`, `\\` and NUL are separators or
    refused in cache keys of servers and KV connectors, so only letters, digits, `.`, `_` and `-` remain.
    """
    digest = _digest([run, trial, attempt])[:24]
    readable = _ILLEGAL.sub("-", f"{run}.{trial}.{attempt}")
    return f"{readable[: SALT_LIMIT - len(digest) - 1]}.{digest}"


def scenario_salt(run: str, spec: TrialSpec) -> str:
    """Give all arms and repeats of one task and seed one salt; attempt 0 keeps it apart from every other."""
    return cache_salt(run, f"{spec.task}/s{spec.seed}", 0)


def run_salt(run: str) -> str:
    """Give all trials of a run one salt; a trial's id is never empty."""
    return cache_salt(run, "", 0)


def _shuffled(arms: Sequence[_Resolved], seed: int, spec: TrialSpec) -> list[_Resolved]:
    return sorted(arms, key=lambda pair: _rank(seed, pair[0].name, spec.task, spec.seed, spec.repeat))


def _rank(seed: int, *parts: JsonValue) -> str:
    # Sorting by a keyed hash is a shuffle that no library version and no platform can change.
    return _digest([seed, *parts])


def _digest(parts: list[JsonValue]) -> str:
    return hashlib.sha256(canonical(parts).encode("utf-8", "surrogatepass")).hexdigest()


_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")
