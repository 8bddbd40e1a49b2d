"""`CompactionPolicy`: when a log is compacted, how, and how often a failing summariser is asked again."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from serving.assembler.record import Record


class Strategy(StrEnum):
    """How covered items become shorter; one file each in `strategies/`."""

    NONE = "none"
    TRUNCATE = "truncate"
    """Left out, and said so: the honest baseline, without a model call."""
    PER_RESULT = "per_result"
    """Every tool result on its own, without knowing the task."""
    COMBINED = "combined"
    """Everything in one summary, without knowing the task."""
    QUERY_AWARE = "query_aware"
    """Everything in one summary, for what the user asked last."""
    QUERY_AWARE_SOURCES = "query_aware_sources"
    """The same as single facts, each with the ids of its sources."""
    ADAPTIVE_WINDOW = "adaptive_window"
    """The same, of the oldest items only, as many as bring the prompt down to `down_to`."""
    ANCHORED_CHECKPOINT = "anchored_checkpoint"
    """Fixed sections, which every later compaction extends and never rewrites."""


class Reach(StrEnum):
    """How far into the log a compaction may go."""

    FINISHED_TASKS = "finished_tasks"
    """Up to the last user turn."""
    RUNNING_TASK = "running_task"
    """Also steps after it, except the last `keep_last`: for one task that outgrows the window."""


class OnUnsupported(StrEnum):
    """What happens to an identifier or a number in a summary that stands in no source."""

    REFUSE = "refuse"
    """The summary is refused."""
    FLAG = "flag"
    """The summary is taken and says which words are unverified."""


class CompactionPolicy(Record):
    """One way of compacting; part of `ContextPolicy` and, with every plan, of the record."""

    strategy: Strategy = Strategy.NONE
    threshold: float = Field(default=0.8, gt=0, le=1)
    """Share of the budget that the rendered prompt must exceed."""
    down_to: float = Field(default=0.5, gt=0, lt=1)
    """Share of the budget that the adaptive window aims at."""
    keep_last: int = Field(default=2, ge=1)
    """So many of the model's last turns, and everything after them, stay in their own words."""
    keep_user_turns: bool = True
    """Earlier user turns stay: a summary is untrusted, so a user's rule would lose its authority in it."""
    reach: Reach = Reach.FINISHED_TASKS
    target_tokens: int = Field(default=1024, ge=32, le=16_384)
    """Most tokens that the model may write for one summary."""
    most_checkpoint_tokens: int = Field(default=4096, ge=64, le=65_536)
    """Size above which an extended checkpoint gives up its oldest finished work, and says so."""
    most_input_tokens: int | None = Field(default=None, ge=64)
    """Most tokens of one summariser prompt; None: the budget of the packet itself."""
    on_unsupported: OnUnsupported = OnUnsupported.REFUSE
    max_failures: int = Field(default=3, ge=1)
    """Failures in a row after which the breaker opens."""
    retry_after_items: int = Field(default=8, ge=1)
    """So many items must the log grow after the last failure before an open breaker lets one try through."""
    version: str = "1"

    @property
    def compacts(self) -> bool:
        """Whether the strategy covers anything at all."""
        return self.strategy is not Strategy.NONE

    def _problem(self) -> str | None:
        if self.strategy is Strategy.ADAPTIVE_WINDOW and self.down_to >= self.threshold:
            return f"down_to must lie below the threshold, but {self.down_to:g} ≥ {self.threshold:g}"
        if self.most_checkpoint_tokens < self.target_tokens:
            return (
                "most_checkpoint_tokens must hold one summary, but "
                f"{self.most_checkpoint_tokens} < {self.target_tokens}"
            )
        return None
