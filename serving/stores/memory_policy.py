"""What may be remembered: the same questions when a memory is written and each time it is read."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import Field

from serving.assembler import ContextItem, Memory, RequestContext, Scope
from serving.assembler.gates import FACT_SOURCES, HYPOTHESIS_SOURCES
from serving.assembler.items import ItemId
from serving.assembler.payloads import Text
from serving.assembler.record import Instant, Record


class MemoryDraft(Record):
    """A statement that somebody wants to have remembered.

    Tenant, subject, purpose and time are no part of it: they come from the trusted request context, so a draft
    that a model wrote cannot widen its own scope.
    """

    text: Text
    source: Text
    """`user_stated`, `system_record` or `model_inferred`; decided by code."""
    legal_basis: Text
    """The consent, or another basis in law, in the policy's words."""
    confidence: float | None = Field(default=None, ge=0, le=1)
    expires_at: Instant | None = None
    review_at: Instant | None = None
    """Not loaded from this moment on until somebody has confirmed it."""
    deletion_binding: Text | None = None
    """What this memory goes with: when that is deleted, it is too (`MemoryStore.delete_bound`)."""
    id: ItemId | None = None
    """Named by a caller whose retries must not write twice; None: a random one, which tells nothing."""


class StoredMemory(Record):
    """A memory as it was kept."""

    id: ItemId
    tenant: Text
    memory: Memory
    review_at: Instant | None = None
    redacted: tuple[str, ...] = ()
    """Kinds of what the redactor took out before it was kept."""

    def item(self) -> ContextItem:
        """The memory for the assembler, whose gates decide again.

        The assembler knows one moment after which a memory does not load: the earlier of expiry and review.
        """
        ends = [moment for moment in (self.memory.expires_at, self.review_at) if moment is not None]
        payload = self.memory.model_copy(update={"expires_at": min(ends, default=None)})
        return ContextItem(
            id=self.id,
            payload=payload,
            owner="memory_store",
            source=f"memory:{self.memory.source}",
            scope=Scope(tenant=self.tenant),
        )


class Refusal(StrEnum):
    """Why a memory is not kept, or is kept and not loaded; in the order of the questions."""

    PURPOSE = "purpose"
    """The policy does not allow this purpose, or the memory was stored for another one."""
    EXPIRED = "expired"
    REVIEW_DUE = "review_due"
    SOURCE = "source"
    LEGAL_BASIS = "legal_basis"
    NO_END = "no_end"
    """Neither an expiry nor a review is set."""
    KEPT_TOO_LONG = "kept_too_long"
    """The expiry lies too far behind the creation or, without one, the review too far ahead."""
    NO_CONFIDENCE = "no_confidence"
    """An inference that does not say how sure it is, or is less sure than the policy asks."""
    TOO_LONG = "too_long"
    NOTHING_LEFT = "nothing_left"
    """Redaction left no text."""
    ID_TAKEN = "id_taken"
    """The subject has another memory of this id."""
    UNKNOWN = "unknown"
    """The subject has no memory of this id."""


class MemoryPolicy(Record):
    """The rules of one deployment."""

    purposes: frozenset[str]
    legal_bases: frozenset[str]
    sources: frozenset[str] = FACT_SOURCES | HYPOTHESIS_SOURCES
    longest: timedelta = timedelta(days=365)
    """From creation to expiry or, without an expiry, from one review to the next."""
    least_confidence: float = Field(default=0.0, ge=0, le=1)
    """For `model_inferred` only."""
    most_characters: int = Field(default=2_000, gt=0)

    def _problem(self) -> str | None:
        known = FACT_SOURCES | HYPOTHESIS_SOURCES
        if unknown := sorted(self.sources - known):
            return (
                f"sources are some of {', '.join(sorted(known))}, which the assembler loads; got {unknown[0]}"
            )
        return None

    def refusal(self, stored: StoredMemory, context: RequestContext) -> Refusal | None:
        """The first rule that `stored` breaks for this request; None: it may be kept, or loaded.

        Tenant and subject are no question here: a memory of somebody else is never looked at.
        """
        memory, now = stored.memory, context.now
        if memory.purpose != context.purpose or memory.purpose not in self.purposes:
            return Refusal.PURPOSE
        if memory.expires_at is not None and memory.expires_at <= now:
            return Refusal.EXPIRED
        if stored.review_at is not None and stored.review_at <= now:
            return Refusal.REVIEW_DUE
        if memory.source not in self.sources:
            return Refusal.SOURCE
        if memory.legal_basis not in self.legal_bases:
            return Refusal.LEGAL_BASIS
        if (reason := self._bad_end(stored, now)) is not None:
            return reason
        if memory.source in HYPOTHESIS_SOURCES and (
            memory.confidence is None or memory.confidence < self.least_confidence
        ):
            return Refusal.NO_CONFIDENCE
        if len(memory.text) > self.most_characters:
            return Refusal.TOO_LONG
        return None if memory.text.strip() else Refusal.NOTHING_LEFT

    def _bad_end(self, stored: StoredMemory, now: datetime) -> Refusal | None:
        created, expires, review = stored.memory.created_at, stored.memory.expires_at, stored.review_at
        if created is None or (expires is None and review is None):
            return Refusal.NO_END
        if expires is not None:
            return Refusal.KEPT_TOO_LONG if expires - created > self.longest else None
        # Every confirmation starts the time anew, so it is counted from the moment of asking.
        return Refusal.KEPT_TOO_LONG if review is not None and review - now > self.longest else None
