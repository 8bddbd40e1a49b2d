"""One trial: what was planned, what a study hands back, and the line that is kept of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Self, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, model_validator

from serving.assembler import ContextManifest
from serving.client import Exchange

NumberT = TypeVar("NumberT", int, float)

Measure = bool | int | float | str | None
"""A number or a label of one trial; `None` is unknown, never zero."""


class TrialSpec(BaseModel):
    """What every arm repeats: arms are compared within one task, seed and repeat."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str
    seed: int
    repeat: int = 0

    @property
    def cluster(self) -> str:
        """What statistics resample: repeats of one task and seed are not independent."""
        return f"{self.task}#{self.seed}"


class OutcomeKind(StrEnum):
    """How an attempt ended; only the first two are scored."""

    OK = "ok"
    TASK_FAILED = "task_failed"
    INFRASTRUCTURE_ERROR = "infrastructure_error"


class CacheTemperature(StrEnum):
    """What the first call of a trial met."""

    COLD = "cold"
    WARM = "warm"
    UNPROVEN = "unproven"


class CacheState(BaseModel):
    """Whether a trial began cold or warm, and how that is known."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: CacheTemperature
    proof: str


class BreakExcerpt(BaseModel):
    """The token ids on both sides of the first difference."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    position: int
    """Index of the first differing token in the prompt."""
    stored_ids: tuple[int, ...]
    sent_ids: tuple[int, ...]
    stored_text: str
    sent_text: str


class CallRecord(BaseModel):
    """What one call cost, by the server's report and by the prediction."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    """Reported by the server."""
    predicted_tokens: int | None = None
    """Cached tokens as predicted before the call."""
    output_tokens: int | None = None
    ttft_s: float | None = None
    latency_s: float | None = None
    causes: dict[str, int] = {}
    """Uncached prompt tokens by the predictor's cause; they add up to `prompt_tokens − predicted_tokens`."""
    named: dict[str, int] = {}
    """The same tokens by the cause that is proven (`MissCause`); they add up to the same number."""
    first_broken: str | None = None
    """Words for the first message or item that left the stored prefix."""
    excerpt: BreakExcerpt | None = None

    @model_validator(mode="after")
    def _causes_add_up(self) -> Self:
        if self.prompt_tokens is None or self.predicted_tokens is None:
            return self
        uncached = self.prompt_tokens - self.predicted_tokens
        for split in (self.causes, self.named):
            if split and sum(split.values()) != uncached:
                raise ValueError(
                    f"causes must add up to the uncached {uncached} tokens, got {sum(split.values())}"
                )
        return self


class TrialOutcome(BaseModel):
    """What `Study.run_trial` hands back.

    An exchange that the machinery failed makes the whole attempt an infrastructure error.
    """

    # JSON has no NaN: it is refused where the study made it, not when the record is written.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    exchanges: tuple[Exchange, ...] = ()
    calls: tuple[CallRecord, ...] = ()
    manifests: tuple[ContextManifest, ...] = ()
    """Of the packets that were sent: what each exchange's `manifest_id` names."""
    measures: dict[str, Measure] = {}
    succeeded: bool = True
    """False: the model failed its task, which is a result."""
    outcome: str = ""
    """What happened, in words or as the answer itself."""


class TrialRecord(BaseModel):
    """One line of `records.jsonl`: an attempt that ended, with everything needed to judge it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    study: str
    arm: str
    factors: dict[str, JsonValue]
    task: str
    seed: int
    repeat: int
    order_index: int
    """Place in the run's seeded order, counted over all arms."""
    attempt: int
    """1 for the first; killed attempts count, so a salt is never used twice."""
    salt: str
    session: int
    """Index into `sessions` of run.json: which start of the program made it."""
    environment: str
    """Key into `environments` of run.json."""
    started: str
    seconds: float
    kind: OutcomeKind
    outcome: str
    cache: CacheState
    measures: dict[str, Measure] = {}
    calls: tuple[CallRecord, ...] = ()
    exchanges: tuple[Exchange, ...] = ()

    @property
    def spec(self) -> TrialSpec:
        """The pairing key: task, seed and repeat."""
        return TrialSpec(task=self.task, seed=self.seed, repeat=self.repeat)

    @property
    def scored(self) -> bool:
        """Whether it may enter a statistic."""
        return self.kind is not OutcomeKind.INFRASTRUCTURE_ERROR


def prove_cache_state(calls: Sequence[CallRecord]) -> CacheState:
    """Read cold or warm off the first call, and call it proven only where every prediction was reported."""
    known = [call for call in calls if None not in (call.predicted_tokens, call.cached_tokens)]
    agreed = sum(call.predicted_tokens == call.cached_tokens for call in known)
    proof = f"predicted == reported in {agreed} of {len(calls)} calls"
    if not calls or agreed < len(calls):
        return CacheState(temperature=CacheTemperature.UNPROVEN, proof=proof)
    warm = bool(calls[0].cached_tokens)
    return CacheState(temperature=CacheTemperature.WARM if warm else CacheTemperature.COLD, proof=proof)


def total(values: Iterable[NumberT | None]) -> NumberT | None:
    """The sum, or None where one part is unknown."""
    parts = tuple(values)
    known = [value for value in parts if value is not None]
    return sum(known) if len(known) == len(parts) else None
