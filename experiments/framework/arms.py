"""Arms as values: a base plus declared factors, and the diff between them, which is the treatment."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from serving.errors import LabError, UsageError

NULL_REBUILD: Final = "null-rebuild"
"""The usual null arm: the base with every packet built anew, so that only what varies by itself can differ."""


class FactorPrefix(StrEnum):
    """The part of the lab that a factor belongs to; a path begins with one of them and a dot."""

    POLICY = "policy"
    FAULT = "fault"
    RENDER = "render"
    DECODE = "decode"
    HARNESS = "harness"
    ENGINE = "engine"
    LOAD = "load"


class Arm(BaseModel):
    """One way of doing the same work: the study's base with a few factors changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")
    title: str
    why: str
    """One or two sentences: what a reader learns from this arm."""
    factors: dict[str, JsonValue] = {}
    """Factor path → value; paths that the base does not have are refused by `resolve`."""


class DiffRow(BaseModel):
    """One factor that is not the same everywhere."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    base: JsonValue
    values: tuple[JsonValue, ...]
    """One value an arm, in the order of `ArmDiff.arms`."""


class ArmDiff(BaseModel):
    """Every factor in which at least one arm differs from the base, and nothing else."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    arms: tuple[str, ...]
    rows: tuple[DiffRow, ...]

    def changes(self) -> Iterable[tuple[str, str, JsonValue, JsonValue]]:
        """Yield (arm, path, base value, arm value) for every cell that differs from the base."""
        for row in self.rows:
            for arm, value in zip(self.arms, row.values, strict=True):
                if not same_value(value, row.base):
                    yield arm, row.path, row.base, value

    def to_json(self) -> JsonValue:
        """Give the table as plain JSON."""
        dumped: JsonValue = self.model_dump(mode="json")
        return dumped

    def to_text(self) -> str:
        """Give one block a factor: its path, its base value, then the arms that differ."""
        if not self.rows:
            return "No factor differs: every arm is the base."
        lines: list[str] = []
        width = max(len(arm) for arm in self.arms)
        for row in self.rows:
            lines.append(f"{row.path}  (base {canonical(row.base)})")
            lines += [
                f"    {arm:<{width}}  {canonical(value)}"
                for arm, value in zip(self.arms, row.values, strict=True)
                if not same_value(value, row.base)
            ]
        return "\n".join(lines)


def resolve(base: Mapping[str, JsonValue], arm: Arm) -> dict[str, JsonValue]:
    """Give the factors of an arm as one flat dict, sorted by path, that shares nothing with its sources.

    Raises `UsageError` for a path without a known prefix, a path that the base does not have, and a value
    that JSON cannot carry.
    """
    check_paths(base, "the base")
    check_paths(arm.factors, f"arm {arm.name!r}")
    for path in arm.factors:
        if path not in base:
            near = get_close_matches(path, base, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "add it to the base with its usual value."
            raise UsageError(f"Arm {arm.name!r} sets {path!r}, which the base does not have: {hint}")
    return copy.deepcopy(dict(sorted({**base, **arm.factors}.items())))


def diff_arms(base: Mapping[str, JsonValue], arms: Sequence[Arm]) -> ArmDiff:
    """Tabulate the factors in which any arm differs from the base, sorted by path."""
    resolved = [resolve(base, arm) for arm in arms]
    rows = tuple(
        DiffRow(path=path, base=base[path], values=tuple(factors[path] for factors in resolved))
        for path in sorted(base)
        if any(not same_value(factors[path], base[path]) for factors in resolved)
    )
    return ArmDiff(arms=tuple(arm.name for arm in arms), rows=rows)


def check_declared(diff: ArmDiff, declared: frozenset[str]) -> None:
    """Refuse a difference that the study did not declare: what differs unseen is read as the treatment."""
    for arm, path, base, value in diff.changes():
        if path not in declared:
            raise UsageError(
                f"Arm {arm!r} differs from the base in {path!r}, which the study does not declare: base "
                f"{canonical(base)}, arm {canonical(value)}. Declare the factor or take it out of the arm."
            )


def check_paths(factors: Mapping[str, JsonValue], owner: str) -> None:
    """Refuse malformed paths, unknown prefixes, a path inside another one, and values outside JSON."""
    for path, value in factors.items():
        prefix = path.partition(".")[0]
        if prefix not in set(FactorPrefix):
            raise UsageError(
                f"{owner} has a factor {path!r}; a path begins with one of "
                f"{', '.join(f'{known}.' for known in FactorPrefix)}"
            )
        if not _PATH.fullmatch(path):
            raise UsageError(
                f"{owner} has a factor {path!r}; after the prefix come names in lower case joined by dots."
            )
        parents = path.split(".")
        for depth in range(2, len(parents)):
            if (parent := ".".join(parents[:depth])) in factors:
                raise UsageError(
                    f"{owner} has both {parent!r} and {path!r}; a factor is a value or a family, not both."
                )
        try:
            canonical(value)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{owner} gives {path!r} a value that JSON cannot carry: {error}.") from error


def whole_number(factors: Mapping[str, JsonValue], path: str) -> int:
    """A factor that has to be a whole number; `LabError` where a study gave it something else."""
    value = factors[path]
    if not isinstance(value, int) or isinstance(value, bool):
        raise LabError(f"Expected a whole number for the factor {path!r}, got {value!r}.")
    return value


def canonical(value: JsonValue) -> str:
    """Write a value so that equal values give equal text: sorted keys, no NaN."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)


def same_value(one: JsonValue, other: JsonValue) -> bool:
    """Compare as JSON: `True` is not `1`, and key order does not count."""
    return canonical(one) == canonical(other)


_PATH = re.compile(r"[a-z]+(\.[a-z][a-z0-9_]*)+")
