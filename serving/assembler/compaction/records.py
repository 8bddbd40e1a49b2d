"""What a compaction is made of, from the plan to the stored result; every record can be replayed from JSON."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeAlias

from pydantic import Field

from serving.assembler.compaction.policy import CompactionPolicy, Strategy
from serving.assembler.items import ContextItem, Scope
from serving.assembler.messages import Message
from serving.assembler.payloads import Summary, Text
from serving.assembler.record import Record, canonical_json, digest

CountTokens: TypeAlias = Callable[[str], int]
"""Tokens of a text, the same number for the same text; an estimate will do, the rendered count decides."""

_NONCE_CHARACTERS: Final = 16


class SpareReason(StrEnum):
    """Why an item stays in its own words, in the order of asking."""

    ALREADY_COMPACTED = "already_compacted"
    LAST_USER_TURN = "last_user_turn"
    CURRENT_TASK = "current_task"
    """It comes after the last user turn, and the policy's `reach` ends there."""
    MOST_RECENT = "most_recent"
    OPEN_CALL = "open_call"
    REQUIRED = "required"
    """Its own flag says so: pending approvals, open conflicts and the like."""
    HAS_AUTHORITY = "has_authority"
    """Its words are trusted (a notification, a note, a skill); a summary's never are."""
    USER_WORDS = "user_words"
    NEEDS_ITS_FORM = "needs_its_form"
    """Evidence keeps its applicability and its identifiers or is not shortened."""
    SUPERSEDES = "supersedes"
    """Without it, what it replaces would come back."""
    OUT_OF_REACH_OF_STRATEGY = "out_of_reach_of_strategy"
    """This strategy does not shorten such an item, or does not need to."""


class Spared(Record):
    """One item that is not covered."""

    id: str
    reason: SpareReason


class Covered(Record):
    """One item that is replaced, and the content that the plan was made for."""

    id: str
    sha256: str


class Form(StrEnum):
    """The form in which an answer must come."""

    PROSE = "prose"
    FACTS = "facts"
    """One fact a line, `- fact [label, label]`."""
    CHECKPOINT = "checkpoint"
    """The fixed sections as `## ` headings, in them facts, or `none`."""


class Source(Record):
    """A text to read, and the item or part of the log it is from; a long one comes in pieces with one id."""

    id: str
    text: str


class SummaryTask(Record):
    """One question to a summariser; the caller sends `messages()` and gives the answer to `finish`."""

    form: Form
    instruction: str
    sources: tuple[Source, ...] = Field(min_length=1)
    query: Source | None = None
    """What the user asked last; it may be cited too."""
    earlier: Source | None = None
    """The checkpoint to extend."""
    max_output: int = Field(gt=0)
    """Tokens of the answer, without any reasoning before it."""

    @property
    def material(self) -> str:
        """Everything to read, each text between tags that it cannot close: they carry a hash of it."""
        parts = [_fenced("source", f"s{number}", source) for number, source in enumerate(self.sources, 1)]
        if self.earlier is not None:
            parts.insert(0, _fenced("checkpoint", "e", self.earlier))
        if self.query is not None:
            parts.append(_fenced("query", "q", self.query))
        return "\n\n".join(parts)

    def messages(self) -> tuple[Message, ...]:
        """The prompt; its texts of outside origin are as raw as in the log."""
        return (
            Message(role="system", content=self.instruction),
            Message(role="user", content=self.material),
        )


class Replacement(Record):
    """The items that one summary will stand for; all have one scope, and the summary gets it."""

    covers: tuple[Covered, ...] = Field(min_length=1)
    """In log order."""
    stands_for: tuple[str, ...] = Field(min_length=1)
    """Ids of the log: those of `covers`, and for an earlier checkpoint among them what that stands for."""
    scope: Scope
    extends: tuple[Summary, ...] = ()
    """Earlier checkpoints among the covered items."""
    tasks: tuple[SummaryTask, ...] = ()
    """Empty where no model is needed."""
    verbatim: tuple[Source, ...] = ()
    """Parts of the covered items that the summary repeats in their own words."""
    tokens_before: int
    most_tokens: int
    """Bound of a checkpoint's text: the policy's, and half of a prompt, so that the next one can read it."""


class CompactionPlan(Record):
    """What to ask a summariser; pure data, made by `plan_compaction`, run by the caller."""

    policy: CompactionPolicy
    strategy_version: str
    replacements: tuple[Replacement, ...] = Field(min_length=1)
    """By the place of their first covered item."""
    spared: tuple[Spared, ...]
    log_items: int
    """Length of the log when the plan was made."""

    @property
    def id(self) -> str:
        """Hash of all that decides the outcome: equal plans, equal ids."""
        return digest(_canonical(self.model_dump(exclude={"spared", "log_items"})))

    @property
    def strategy(self) -> Strategy:
        """The policy's strategy."""
        return self.policy.strategy

    @property
    def covers(self) -> tuple[Covered, ...]:
        """All covered items, replacement by replacement."""
        return tuple(covered for replacement in self.replacements for covered in replacement.covers)

    @property
    def tasks(self) -> tuple[SummaryTask, ...]:
        """All questions in the order in which `finish` takes the answers."""
        return tuple(task for replacement in self.replacements for task in replacement.tasks)

    @property
    def tokens_before(self) -> int:
        """Of all covered items."""
        return sum(replacement.tokens_before for replacement in self.replacements)


class NoCompactionReason(StrEnum):
    """Why nothing is compacted, in the order of asking."""

    STRATEGY_NONE = "strategy_none"
    NOT_OVER_THRESHOLD = "not_over_threshold"
    BREAKER_OPEN = "breaker_open"
    NOTHING_ELIGIBLE = "nothing_eligible"
    NO_ROOM_FOR_SUMMARISER = "no_room_for_summariser"
    """A prompt within the policy's bound could hold next to nothing of the log."""
    WOULD_NOT_SHRINK = "would_not_shrink"


class NoCompaction(Record):
    """The log stays as it is."""

    reason: NoCompactionReason
    used: int
    limit: int
    """Tokens above which a compaction is due."""
    spared: tuple[Spared, ...] = ()
    retry_at_items: int | None = None
    """Length of the log at which an open breaker lets one try through."""


class SummaryAnswer(Record):
    """What a summariser said, with what it cost; errors of the call itself go to `call_failed`."""

    text: str
    model: Text
    prompt_tokens: int | None = Field(default=None, ge=0)
    """As the server counted; None: unknown."""
    output_tokens: int | None = Field(default=None, ge=0)
    finish_reason: str | None = None
    """`length` is a text that was cut."""


class SummaryCall(Record):
    """One recorded call of a summariser."""

    model: str
    prompt_tokens: int | None
    output_tokens: int | None


class RefusalReason(StrEnum):
    """Why an answer does not become a summary."""

    CALL_FAILED = "call_failed"
    EMPTY = "empty"
    ERROR_TEXT = "error_text"
    """An error message or a refusal instead of a summary."""
    PLACEHOLDER = "placeholder"
    TRUNCATED = "truncated"
    WRONG_FORM = "wrong_form"
    MISSING_SECTION = "missing_section"
    UNSOURCED_CLAIM = "unsourced_claim"
    UNKNOWN_SOURCE = "unknown_source"
    UNSUPPORTED_WORD = "unsupported_word"
    """An identifier or a number that stands in no source."""
    INVENTED_CONSTRAINT = "invented_constraint"
    UNWRITTEN_ARCHIVE = "unwritten_archive"
    """It says that something was archived, and no source says so."""
    TOO_LONG = "too_long"
    """A checkpoint is over its bound even without its oldest finished work."""
    NOT_SHORTER = "not_shorter"


class Refused(Record):
    """One replacement that was not made."""

    covers: tuple[str, ...]
    reason: RefusalReason
    detail: str
    """Where and what, in words; of the answer at most a short quotation."""


class CompactionFailure(Record):
    """Nothing was compacted; stored by the caller and handed to the next plan, where the breaker counts it."""

    plan_id: str
    strategy: Strategy
    strategy_version: str
    refused: tuple[Refused, ...] = Field(min_length=1)
    calls: tuple[SummaryCall, ...] = ()
    log_items: int

    @property
    def reason(self) -> RefusalReason:
        """Of the first replacement."""
        return self.refused[0].reason


class Replaced(Record):
    """One summary and what it stands for directly."""

    item: ContextItem
    """Of kind `summary`; it stands at the place of the first item that it covers."""
    covers: tuple[Covered, ...] = Field(min_length=1)

    def _problem(self) -> str | None:
        if not isinstance(self.item.payload, Summary):
            return f"a summary stands for covered items, but {self.item.id} is a {self.item.kind.value}"
        return None


class Compaction(Record):
    """What stands for which items, and what making it cost; stored by the caller and sent with every request."""

    plan_id: str
    strategy: Strategy
    strategy_version: str
    policy_version: str
    replaced: tuple[Replaced, ...] = Field(min_length=1)
    """By the place of their first covered item; the originals stay in the log."""
    refused: tuple[Refused, ...] = ()
    """Replacements of the same plan that were not made; their items stay as they are."""
    calls: tuple[SummaryCall, ...] = ()
    tokens_before: int
    tokens_after: int
    log_items: int
    """Length of the log when the plan was made."""

    @property
    def id(self) -> str:
        """Hash of the whole record."""
        return digest(_canonical(self.model_dump()))

    @property
    def covers(self) -> tuple[Covered, ...]:
        """All items that are replaced."""
        return tuple(covered for one in self.replaced for covered in one.covers)

    @property
    def items(self) -> tuple[ContextItem, ...]:
        """The summaries that stand for them."""
        return tuple(one.item for one in self.replaced)

    def _problem(self) -> str | None:
        if self.tokens_after >= self.tokens_before:
            return f"a compaction must shrink, but {self.tokens_before} tokens became {self.tokens_after}"
        return None


def _canonical(value: object) -> str:
    """JSON that is the same in every process: a set, such as a scope's readers, has no order of its own."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain)


def _plain(value: object) -> list[str] | str:
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no canonical form")


def _fenced(tag: str, label: str, source: Source) -> str:
    nonce = digest(canonical_json([tag, source.id, source.text]))[:_NONCE_CHARACTERS]
    shown_id = html.escape(" ".join(source.id.split()))
    return f'<{tag}:{nonce} label="{label}" id="{shown_id}">\n{source.text}\n</{tag}:{nonce}>'
