"""Lasting facts about a subject: kept under a policy, read under the same policy, deleted for good."""

from __future__ import annotations

import secrets
import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from serving.assembler import ContextItem, Memory, RequestContext
from serving.redact import Redactor, SecretRedactor
from serving.stores.database import Database
from serving.stores.memory_policy import MemoryDraft, MemoryPolicy, Refusal, StoredMemory
from serving.text import require_unicode_text

_APPLICATION_ID: Final = 0x63746D31  # "ctm1"
# Text columns compare byte by byte (SQLite's BINARY collation): `test_user` never matches `test_user1`.
_SCHEMA: Final = """
CREATE TABLE memories (
    tenant TEXT NOT NULL, subject TEXT NOT NULL, id TEXT NOT NULL,
    deletion_binding TEXT, expires_at INTEGER, body TEXT NOT NULL,
    PRIMARY KEY (tenant, subject, id)
) STRICT, WITHOUT ROWID
"""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Refused:
    """A memory that was not kept, and why."""

    reason: Refusal


@dataclass(frozen=True, slots=True)
class Withheld:
    """A memory of the subject that does not load for this request, and why."""

    id: str
    reason: Refusal


@dataclass(frozen=True, slots=True)
class LoadedMemories:
    """What a request may read, sorted by id, and what its subject has besides."""

    items: tuple[ContextItem, ...]
    withheld: tuple[Withheld, ...]


class MemoryStore:
    """Memories in one SQLite file; safe to share between processes, and to kill at any moment.

    Every call names its tenant and subject through a trusted `RequestContext`, which also gives the time.
    Nothing here tells one subject that another has memories, not even by a number. `LabError` when the file
    cannot be used; a redactor's exception comes through, and nothing is kept.
    """

    def __init__(self, path: Path, *, policy: MemoryPolicy, redactor: Redactor | None = None) -> None:
        self._database = Database(path, _SCHEMA, application_id=_APPLICATION_ID)
        self._policy = policy
        self._redactor = SecretRedactor() if redactor is None else redactor

    def write(self, draft: MemoryDraft, context: RequestContext) -> StoredMemory | Refused:
        """Keep a redacted memory about the context's subject, if the policy allows it.

        A draft with an id may be written again and changes nothing, also when its creation was earlier;
        another draft under the same id is refused.
        """
        tenant, subject = _whose(context)
        redaction = self._redactor.redact(draft.text)
        if not redaction.text.strip():
            return Refused(Refusal.NOTHING_LEFT)
        stored = StoredMemory(
            id=draft.id or f"memory-{secrets.token_hex(16)}",
            tenant=tenant,
            memory=Memory(
                text=redaction.text,
                subject=subject,
                purpose=context.purpose,
                source=draft.source,
                legal_basis=draft.legal_basis,
                confidence=draft.confidence,
                created_at=context.now,
                expires_at=draft.expires_at,
                deletion_binding=draft.deletion_binding,
            ),
            review_at=draft.review_at,
            redacted=redaction.removed,
        )
        if (reason := self._policy.refusal(stored, context)) is not None:
            return Refused(reason)
        stored.item()  # what the assembler would not take is not kept: it raises here, not at every load
        with self._database.transaction() as connection:
            standing = _find(connection, tenant, subject, stored.id)
            if standing is None:
                _save(connection, stored)
                return stored
        return standing if _said_again(standing, stored) else Refused(Refusal.ID_TAKEN)

    def load(self, context: RequestContext) -> LoadedMemories:
        """The subject's memories that may enter this request, as items for the assembler.

        All rules of writing are asked again, with the policy and the redactor of today: a rule that became
        stricter holds for what is already stored. The assembler's gates run on the items once more.
        """
        items: list[ContextItem] = []
        withheld: list[Withheld] = []
        for stored in self._of(*_whose(context)):
            text = self._redactor.redact(stored.memory.text).text
            if not text.strip():
                withheld.append(Withheld(stored.id, Refusal.NOTHING_LEFT))
                continue
            memory = stored.memory.model_copy(update={"text": text})
            current = stored.model_copy(update={"memory": memory})
            if (reason := self._policy.refusal(current, context)) is not None:
                withheld.append(Withheld(stored.id, reason))
            else:
                items.append(current.item())
        return LoadedMemories(tuple(items), tuple(withheld))

    def confirm(
        self, memory_id: str, context: RequestContext, *, review_at: datetime | None
    ) -> StoredMemory | Refused:
        """Set the next review of the subject's memory, if the policy allows it; None: none is needed."""
        tenant, subject = _whose(context)
        with self._database.transaction() as connection:
            standing = _find(connection, tenant, subject, memory_id)
            if standing is None:
                return Refused(Refusal.UNKNOWN)
            confirmed = StoredMemory(
                id=standing.id,
                tenant=tenant,
                memory=standing.memory,
                review_at=review_at,
                redacted=standing.redacted,
            )
            if (reason := self._policy.refusal(confirmed, context)) is not None:
                return Refused(reason)
            _save(connection, confirmed)
        return confirmed

    def list_own(self, context: RequestContext) -> tuple[StoredMemory, ...]:
        """Everything that is kept about the actor in his tenant, loadable or not, sorted by id."""
        return self._of(context.tenant, context.actor)

    def delete_own(self, context: RequestContext, memory_id: str | None = None) -> int:
        """Delete one memory about the actor, or all (None), and return how many there were."""
        where, values = "tenant = ? AND subject = ?", [context.tenant, context.actor]
        if memory_id is not None:
            where, values = f"{where} AND id = ?", [*values, memory_id]
        return self._delete(where, *values)

    def delete_bound(self, tenant: str, binding: str) -> int:
        """Delete the memories of a tenant that go with `binding`, whoever they are about."""
        return self._delete("tenant = ? AND deletion_binding = ?", tenant, binding)

    def delete_expired(self, now: datetime) -> int:
        """Delete what has expired in all tenants; they stopped loading at that moment already."""
        return self._delete("expires_at <= ?", _microseconds(now))

    def _of(self, tenant: str, subject: str) -> tuple[StoredMemory, ...]:
        with self._database.transaction() as connection:
            rows = connection.execute(
                "SELECT body FROM memories WHERE tenant = ? AND subject = ? ORDER BY id",
                (_text(tenant), _text(subject)),
            ).fetchall()
        return tuple(StoredMemory.model_validate_json(body) for (body,) in rows)

    def _delete(self, where: str, *values: str | int) -> int:
        with self._database.transaction() as connection:
            # `where` is one of the literals above, never a value.
            deleted = connection.execute(
                f"DELETE FROM memories WHERE {where}",  # noqa: S608
                [_text(value) if isinstance(value, str) else value for value in values],
            ).rowcount
        return int(deleted)


def _whose(context: RequestContext) -> tuple[str, str]:
    return _text(context.tenant), _text(context.subject or context.actor)


def _text(value: str) -> str:
    return require_unicode_text(value, "a name given to the memory store")


def _find(connection: sqlite3.Connection, tenant: str, subject: str, memory_id: str) -> StoredMemory | None:
    row = connection.execute(
        "SELECT body FROM memories WHERE tenant = ? AND subject = ? AND id = ?",
        (tenant, subject, _text(memory_id)),
    ).fetchone()
    return None if row is None else StoredMemory.model_validate_json(row[0])


def _save(connection: sqlite3.Connection, stored: StoredMemory) -> None:
    memory = stored.memory
    expires = None if memory.expires_at is None else _microseconds(memory.expires_at)
    connection.execute(
        "INSERT OR REPLACE INTO memories VALUES (?, ?, ?, ?, ?, ?)",
        (
            stored.tenant,
            memory.subject,
            stored.id,
            memory.deletion_binding,
            expires,
            stored.model_dump_json(),
        ),
    )


def _said_again(standing: StoredMemory, again: StoredMemory) -> bool:
    """Whether both say the same; a retry has a later creation, and a review may have moved since."""
    memory = again.memory.model_copy(update={"created_at": standing.memory.created_at})
    return again.model_copy(update={"memory": memory, "review_at": standing.review_at}) == standing


def _microseconds(moment: datetime) -> int:
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return (aware - _EPOCH) // timedelta(microseconds=1)
