"""Ways in which a server can report cached tokens that are not so: each a formula, named when it explains all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict


class Case(NamedTuple):
    """One request as the rule sees it; lengths in tokens."""

    prompt: int
    predicted: int
    shared: int
    """Longest prefix of the prompt that an earlier request with the same salt stored."""
    unsalted: int
    """What would be predicted if salts did not separate."""
    previous: int | None
    """What was predicted for the request before; None where that is not known."""


class Lie(StrEnum):
    """What a wrong report amounts to."""

    ALWAYS_ZERO = "always 0"
    WHOLE_PROMPT = "the whole prompt"
    PROMPT_MINUS_ONE = "prompt − 1"
    DOUBLED = "twice the truth"
    PREVIOUS_REQUEST = "the previous request's value"
    NOT_ROUNDED = "not rounded to blocks"
    ROUNDED_UP = "rounded up to blocks"
    ROUNDED_TO_NEAREST = "rounded to the nearest block"
    LAST_TOKEN_COUNTED = "the last token counted, which is always computed"  # noqa: S105 - no secret
    ONE_BLOCK_FEWER = "one block fewer"
    SALT_IGNORED = "as if salts did not separate"
    OTHER_BLOCK_SIZE = "rounded to another block size"


class NamedLie(BaseModel):
    """A formula that gives every reported number, where the rule does not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lie: Lie
    sentence: str


Formula = Callable[[Case, int], int | None]
"""What the lie reports for a case, given the block size; None: it can be anything."""


def _rounded_up(case: Case, block: int) -> int:
    return -(-min(case.shared, case.prompt) // block) * block


def _rounded_to_nearest(case: Case, block: int) -> int:
    return (min(case.shared, case.prompt - 1) + block // 2) // block * block


FORMULAS: Mapping[Lie, tuple[Formula, ...]] = MappingProxyType(
    {
        Lie.ALWAYS_ZERO: (lambda case, block: 0,),
        Lie.WHOLE_PROMPT: (lambda case, block: case.prompt,),
        Lie.PROMPT_MINUS_ONE: (
            lambda case, block: case.prompt - 1,
            lambda case, block: case.prompt - 1 if case.predicted else 0,
        ),
        Lie.DOUBLED: (
            lambda case, block: 2 * case.predicted,
            lambda case, block: min(2 * case.predicted, case.prompt),
        ),
        Lie.PREVIOUS_REQUEST: (lambda case, block: case.previous,),
        Lie.NOT_ROUNDED: (
            lambda case, block: min(case.shared, case.prompt - 1),
            lambda case, block: case.shared,
        ),
        Lie.ROUNDED_UP: (_rounded_up, lambda case, block: min(_rounded_up(case, block), case.prompt)),
        Lie.ROUNDED_TO_NEAREST: (
            _rounded_to_nearest,
            lambda case, block: min(_rounded_to_nearest(case, block), case.prompt),
        ),
        Lie.LAST_TOKEN_COUNTED: (lambda case, block: case.shared // block * block,),
        Lie.ONE_BLOCK_FEWER: (lambda case, block: max(case.predicted - block, 0),),
        Lie.SALT_IGNORED: (lambda case, block: case.unsalted,),
    }
)

_MEANS: Mapping[Lie, str] = MappingProxyType(
    {
        Lie.ALWAYS_ZERO: "caching is off, or the count is not wired up",
        Lie.WHOLE_PROMPT: "a prompt never sent before cannot be cached",
        Lie.PROMPT_MINUS_ONE: "as servers do that prefill on another machine; it is no multiple of the block "
        "size, so it counts no cached blocks",
        Lie.DOUBLED: "counted twice",
        Lie.PREVIOUS_REQUEST: "the count is read before it is updated",
        Lie.NOT_ROUNDED: "only whole blocks are kept",
        Lie.ROUNDED_UP: "only whole blocks are kept",
        Lie.ROUNDED_TO_NEAREST: "only whole blocks are kept",
        Lie.LAST_TOKEN_COUNTED: "the first output token needs the last prompt token computed",
        Lie.ONE_BLOCK_FEWER: "the rule of speculative decoding, which cannot be predicted here",
        Lie.SALT_IGNORED: "requests with different salts must share nothing",
    }
)


def name_lies(cases: Sequence[Case], reported: Sequence[int], block_size: int) -> tuple[NamedLie, ...]:
    """Name every lie that gives all reported numbers; empty where they are the predicted ones, or unexplained."""
    if list(reported) == [case.predicted for case in cases]:
        return ()
    return tuple(_explaining(cases, list(reported), block_size))


def _explaining(cases: Sequence[Case], reported: list[int], block_size: int) -> Iterator[NamedLie]:
    for lie, formulas in FORMULAS.items():
        if any(_explains(formula, cases, reported, block_size) for formula in formulas):
            yield NamedLie(lie=lie, sentence=f"It reports {lie} ({_MEANS[lie]}).")
    others = fitting_block_sizes(cases, reported, up_to=8 * block_size)
    if any(reported) and others and block_size not in others and 1 not in others:
        yield NamedLie(
            lie=Lie.OTHER_BLOCK_SIZE,
            sentence=f"What it reports fits blocks of {others[0]} tokens, and it tells {block_size}.",
        )


def fitting_block_sizes(cases: Sequence[Case], reported: Sequence[int], *, up_to: int) -> list[int]:
    """Every block size with which the rule gives all reported numbers; nothing was evicted meanwhile."""
    found = []
    for size in range(1, up_to + 1):
        counted = (min(case.shared, case.prompt - 1) // size * size for case in cases)
        if all(one == other for one, other in zip(counted, reported, strict=True)):
            found.append(size)
    return found


def _explains(formula: Formula, cases: Sequence[Case], reported: list[int], block_size: int) -> bool:
    for case, number in zip(cases, reported, strict=True):
        claimed = formula(case, block_size)
        if claimed is not None and claimed != number:
            return False
    return True
