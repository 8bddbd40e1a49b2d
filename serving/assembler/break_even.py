"""Whether a status bar should be replaced or appended: the published break-even and the corrected one.

Both weigh what `replace` computes again against what `append` carries along. The published form charges
`replace` for all tokens between two updates; those that no earlier request had computed are new under either
choice, so the corrected form charges only the rest. `simulate_status` counts both by prefix reuse itself.
"""

from __future__ import annotations

import math
from enum import StrEnum
from fractions import Fraction
from typing import Final

from pydantic import Field

from serving.assembler.record import Record
from serving.errors import UsageError


class BarMode(StrEnum):
    """What happens to the bar that was sent before."""

    REPLACE = "replace"
    """One fresh copy; what followed the old one is computed again."""
    APPEND = "append"
    """All copies stay; each is read again, at the cached price, by every later call."""


class Choice(StrEnum):
    """The cheaper mode."""

    REPLACE = "replace"
    APPEND = "append"
    TIE = "tie"


class Formula(StrEnum):
    """Which tokens `replace` is charged for."""

    PUBLISHED = "published"
    """N* = 2(1 − α)R / (αS): all tokens between two updates."""
    CORRECTED = "corrected"
    """N* = 2(1 − α)R_c / (αSk): those that an earlier request had computed, with k calls an update."""


class BreakEvenInputs(Record):
    """What the decision depends on, in tokens, counts and one price ratio."""

    price_ratio: float = Field(ge=0, le=1)
    """α: price of a cached prompt token over the price of a computed one."""
    status_tokens: int = Field(gt=0)
    """S: tokens of one bar."""
    tokens_between_updates: int = Field(gt=0)
    """R: tokens that the conversation grows by from one update to the next."""
    recomputed_tokens: int = Field(ge=0)
    """R_c: those of R that follow the old bar and that an earlier request had computed already."""
    updates: int = Field(ge=1)
    """N: bars shown in the run."""
    calls_per_update: int = Field(default=1, ge=1)
    """k: model calls that read a bar before the next one comes."""

    def _problem(self) -> str | None:
        if self.recomputed_tokens > self.tokens_between_updates:
            return (
                "recomputed_tokens are part of tokens_between_updates, but "
                f"{self.recomputed_tokens} of {self.tokens_between_updates} were given"
            )
        return None


class BreakEven(Record):
    """One formula's verdict; costs are extra prompt tokens at the price of a computed token."""

    formula: Formula
    updates_at_tie: float | None
    """N*: appending is cheaper below it, replacing above it; None: appending is never dearer (α = 0)."""
    replace_first_cheaper_at: int | None
    """The smallest N at which replacing costs strictly less; None: there is none."""
    replace_cost: float
    append_cost: float
    choice: Choice


class Advice(Record):
    """Both verdicts side by side, over inputs that have names."""

    inputs: BreakEvenInputs
    published: BreakEven
    corrected: BreakEven

    @property
    def choice(self) -> Choice:
        """What to do: the corrected verdict."""
        return self.corrected.choice


def advise(inputs: BreakEvenInputs, *, block_size: int = 1) -> Advice:
    """Compare `replace` and `append` by both formulas, exactly (in fractions, so that a tie is a tie).

    `block_size` in tokens: an engine reuses whole blocks only, so R_c counts in whole blocks. Where blocks
    begin is not known here; `simulate_status` knows it. `UsageError` for a block size below 1.
    """
    if block_size < 1:
        raise UsageError(f"A block holds at least 1 token, but block_size is {block_size}.")
    whole = inputs.recomputed_tokens // block_size * block_size
    return Advice(
        inputs=inputs,
        published=_verdict(Formula.PUBLISHED, inputs, inputs.tokens_between_updates, 1),
        corrected=_verdict(Formula.CORRECTED, inputs, whole, inputs.calls_per_update),
    )


def _verdict(formula: Formula, inputs: BreakEvenInputs, charged: int, calls: int) -> BreakEven:
    ratio, updates = _exact(inputs.price_ratio), inputs.updates
    # Each update but the first computes `charged` tokens that could have been read from the cache.
    once = (1 - ratio) * charged
    # The call after update n carries n − 1 old bars, so the sum over the run grows with the square of N.
    carried = ratio * inputs.status_tokens * calls
    replace, append = (updates - 1) * once, carried * updates * (updates - 1) / 2
    tie = 2 * once / carried if carried else None
    return BreakEven(
        formula=formula,
        updates_at_tie=None if tie is None else float(tie),
        # One update alone costs the same under both, so replacing is first cheaper at two.
        replace_first_cheaper_at=None if tie is None else max(2, math.floor(tie) + 1),
        replace_cost=float(replace),
        append_cost=float(append),
        choice=_cheaper(replace, append) if carried else Choice.APPEND,
    )


def _cheaper(replace: Fraction, append: Fraction) -> Choice:
    if replace == append:
        return Choice.TIE
    return Choice.APPEND if append < replace else Choice.REPLACE


def _exact(ratio: float) -> Fraction:
    """The decimal number that was written: 0.1 is one tenth, and not the nearest binary fraction."""
    return Fraction(repr(ratio))


_HEAD_TOKENS: Final = 1_000


class StatusRun(Record):
    """A tool loop as sizes in tokens: k calls an update, each with one output and one observation after it."""

    status_tokens: int = Field(gt=0)
    tokens_between_updates: int = Field(gt=0)
    output_tokens: int = Field(default=40, ge=0)
    """What one call produces; taken as computed when the call ends."""
    calls_per_update: int = Field(default=1, ge=1)
    head_tokens: int = Field(default=_HEAD_TOKENS, ge=0)
    """Before the first bar; the same under both modes."""

    def _problem(self) -> str | None:
        if self.observation_tokens[-1] < 0:
            return (
                f"{self.calls_per_update} outputs of {self.output_tokens} tokens must fit into "
                f"tokens_between_updates, which is {self.tokens_between_updates}"
            )
        return None

    @property
    def observation_tokens(self) -> tuple[int, ...]:
        """Tokens that follow the output of each call of an update; sizes differ by 1 at most, falling."""
        share, more = divmod(self.tokens_between_updates, self.calls_per_update)
        return tuple(share + (call < more) - self.output_tokens for call in range(self.calls_per_update))

    @property
    def recomputed_tokens(self) -> int:
        """R_c: everything between two updates but the last observation, which no request has read yet."""
        return self.tokens_between_updates - self.observation_tokens[-1]

    def inputs(self, updates: int, price_ratio: float) -> BreakEvenInputs:
        """The same run in the terms of the formulas."""
        return BreakEvenInputs(
            price_ratio=price_ratio,
            status_tokens=self.status_tokens,
            tokens_between_updates=self.tokens_between_updates,
            recomputed_tokens=self.recomputed_tokens,
            updates=updates,
            calls_per_update=self.calls_per_update,
        )


class PromptCost(Record):
    """Prompt tokens of all calls of a run, and those of them that a cache had."""

    prompt_tokens: int
    cached_tokens: int

    def price(self, price_ratio: float) -> float:
        """Cost in computed tokens: cached ones at α, the others at 1."""
        return float(self._price(price_ratio))

    def _price(self, price_ratio: float) -> Fraction:
        ratio = _exact(price_ratio)
        return self.prompt_tokens - (1 - ratio) * self.cached_tokens


_Segment = tuple[str, int, int]
"""(what, number, tokens): two segments share all their tokens or, from the first one on, none."""


def simulate_status(run: StatusRun, updates: int, mode: BarMode, *, block_size: int = 1) -> PromptCost:
    """Play `updates` updates and count reuse: the longest prefix that an earlier call computed, in blocks.

    A call leaves its prompt and its output in the cache, which is never full. A bar stands where it came
    until the next one; then `replace` takes it out and `append` leaves it. `UsageError` for no update or a
    block size below 1.
    """
    if updates < 1 or block_size < 1:
        raise UsageError(
            f"updates and block_size are at least 1, but updates {updates} and block_size {block_size} came."
        )
    said: list[_Segment] = [("head", 0, run.head_tokens)]
    computed: list[tuple[_Segment, ...]] = []
    prompt_tokens = cached_tokens = calls = 0
    for update in range(updates):
        if mode is BarMode.REPLACE:
            said = [segment for segment in said if segment[0] != "bar"]
        said.append(("bar", update, run.status_tokens))
        for observation in run.observation_tokens:
            prompt_tokens += sum(tokens for _, _, tokens in said)
            reused = max((_common_tokens(said, earlier) for earlier in computed), default=0)
            cached_tokens += reused // block_size * block_size
            said.append(("output", calls, run.output_tokens))
            computed.append(tuple(said))
            said.append(("observation", calls, observation))
            calls += 1
    return PromptCost(prompt_tokens=prompt_tokens, cached_tokens=cached_tokens)


def _common_tokens(prompt: list[_Segment], earlier: tuple[_Segment, ...]) -> int:
    common = 0
    # Of unequal length on purpose: what one has more is not shared.
    for mine, other in zip(prompt, earlier, strict=False):
        if mine != other:
            break
        common += mine[2]
    return common


def cheaper_by_simulation(run: StatusRun, updates: int, price_ratio: float, *, block_size: int = 1) -> Choice:
    """The cheaper mode of a run that was played both ways."""
    replace, append = (
        simulate_status(run, updates, mode, block_size=block_size)._price(price_ratio)
        for mode in (BarMode.REPLACE, BarMode.APPEND)
    )
    return _cheaper(replace, append)
