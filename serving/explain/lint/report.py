"""A linted log in one value: tokens by cause, what broke first, what to change, and what could not be read."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from serving.explain.causes import MissCause
from serving.explain.lint.usage import UsageProblem


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Side(_Record):
    """One of two texts that part, from the first token that differs."""

    line: int
    place: str
    token_ids: tuple[int, ...]
    text: str


class Example(_Record):
    """One request that a group stands for."""

    line: int
    tokens: int
    """Lost to this cause in this request."""
    detail: str
    position: int | None
    """The first token that differs."""
    lead: str
    """The text right before it, the same on both sides."""
    stored: Side | None
    sent: Side | None


class Group(_Record):
    """All requests that lost tokens to one cause at one kind of place."""

    cause: MissCause
    place: str
    """`system message`, `tool list` …"""
    requests: int
    tokens: int
    lost_money: float | None
    lost_seconds: float | None
    lines: tuple[int, ...]
    """The first few."""
    example: Example
    advice: str


class Notice(StrEnum):
    """What is not a miss and changes how the numbers are to be read."""

    REPLIES_UNKNOWN = "reply ids unknown"
    REPEATED_PROMPTS = "repeated prompts"
    SILENT_REASONING = "reasoning never printed"
    TEMPLATE_CLOCK = "template reads the clock"
    OTHER_MODELS = "requests to other models"
    OTHER_LOG = "log of another model"
    BLOCK_SIZE = "block size"


class Note(_Record):
    """A notice in one sentence."""

    notice: Notice
    sentence: str


class UsageGroup(_Record):
    """All requests with one problem in what the server reports."""

    problem: UsageProblem
    requests: int
    lines: tuple[int, ...]
    sentence: str
    """Of the first of them."""


class Skipped(_Record):
    """A line that could not be read as a request."""

    line: int
    reason: str


class LintReport(_Record):
    """What `ctxlab lint` knows of a log."""

    log: str
    served_name: str | None
    block_size: int
    num_blocks: int | None
    requests: int
    prompt_tokens: int
    cached_tokens: int
    possible_tokens: int
    reported_tokens: int | None
    """Cached tokens as the server reports them, where it does for every request."""
    tokens_by_cause: dict[MissCause, int]
    """Uncached tokens; they add up to prompt_tokens − cached_tokens."""
    lost_tokens: int
    lost_money: float | None
    lost_seconds: float | None
    groups: tuple[Group, ...]
    """Most tokens first."""
    first_break: Group | None
    """The group of the earliest avoidable loss."""
    usage: tuple[UsageGroup, ...]
    notes: tuple[Note, ...]
    skipped: tuple[Skipped, ...]
    """The first few lines that are no requests."""
    skipped_lines: int
    kept_token_ids: int

    @property
    def cached_share(self) -> float | None:
        """Cached / prompt tokens as predicted; None for a log without requests."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None
