"""What happened around the agent, in one queue that empties into the end of the next request."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pydantic import Field

from serving.assembler import ContextItem, Notification, Scope, Trust
from serving.assembler.payloads import Text
from serving.assembler.record import Instant, Record
from serving.errors import LabError, UsageError
from serving.stores.database import Database
from serving.text import require_unicode_text, visible

LONGEST_VALUE: Final = 2_000
"""Characters of one value of an event; what is longer belongs in the artifact store."""

_APPLICATION_ID: Final = 0x63746531  # "cte1"
_SCHEMA: Final = """
CREATE TABLE events (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, event_key TEXT UNIQUE,
    body TEXT NOT NULL, shown TEXT NOT NULL, request_id TEXT
) STRICT
"""
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)


class EventKind(StrEnum):
    """What an event is; decided by the code that pushes it, never read from a text."""

    FILE_CHANGED = "file_changed"
    JOB_FINISHED = "job_finished"
    APPROVAL_RETURNED = "approval_returned"
    MODE_SWITCHED = "mode_switched"


_SENTENCES: Final = MappingProxyType(
    {
        EventKind.FILE_CHANGED: "A file was changed outside this conversation.",
        EventKind.JOB_FINISHED: "A job has finished.",
        EventKind.APPROVAL_RETURNED: "An approval request was answered.",
        EventKind.MODE_SWITCHED: "The mode was switched.",
    }
)


class HarnessEvent(Record):
    """One event, in parts: its kind says what happened, its values are quoted and say nothing by themselves.

    There is no free text: a file name or a job's output that imitates a notification, an approval or a
    delimiter is a JSON string inside an event of the kind that code gave it.
    """

    kind: EventKind
    at: Instant
    facts: dict[str, str] = Field(default_factory=dict)
    """Values that the harness wrote itself, by names such as `path`, `exit_status`."""
    outside: dict[str, str] = Field(default_factory=dict)
    """Values of outside origin; an event that has any is shown as untrusted."""

    def _problem(self) -> str | None:
        if both := sorted(self.facts.keys() & self.outside.keys()):
            return f"a value is either the harness's own or from outside, but {both[0]} is given as both"
        for name, value in [*self.facts.items(), *self.outside.items()]:
            if not _NAME.fullmatch(name):
                return "the name of a value is a word of small letters, digits and underscores"
            require_unicode_text(value, f"the event's {name}")
            if len(value) > LONGEST_VALUE:
                return (
                    f"a value has at most {LONGEST_VALUE} characters, but {name} has {len(value)}; put it into "
                    "the artifact store and give its reference"
                )
        return None

    @property
    def text(self) -> str:
        """The words that the model reads; the same for equal events, whatever order the values came in."""
        lines = [f"{_SENTENCES[self.kind]} ({self.at.isoformat()})"]
        lines.extend(f"{name}: {quoted(value)}" for name, value in sorted(self.facts.items()))
        lines.extend(f"{name} (quoted): {quoted(value)}" for name, value in sorted(self.outside.items()))
        return "\n".join(lines)


class LoggedEvent(Record):
    """An event, its place in the queue, and the request that it went out with."""

    sequence: int = Field(gt=0)
    event: HarnessEvent
    text: str
    """The words as they were when the event was pushed: a later version of this file does not change them."""
    request_id: str | None
    """None: still waiting."""


class Drain(Record):
    """What one request takes out of the queue; nothing is taken before `EventQueue.commit`."""

    request_id: Text
    sequences: tuple[int, ...]
    items: tuple[ContextItem, ...]
    """Candidates of the request, in queue order (`ContextItem.order`) at the end of their layer."""


class EventQueue:
    """The queue of one run in one SQLite file; safe to share between processes, and to kill at any moment.

    The protocol of exactly once: `drain` for a request, build and keep that request, `commit`, send. A crash
    before `commit` drains the same events again, with the same bytes; after it they belong to that request.
    `LabError` when the file cannot be used.
    """

    def __init__(self, path: Path, *, tenant: str | None = None) -> None:
        self._database = Database(path, _SCHEMA, application_id=_APPLICATION_ID)
        self._scope = Scope(tenant=tenant)

    def push(self, event: HarnessEvent, *, key: str | None = None) -> int:
        """Put an event at the end and return its sequence number, counted from 1.

        A `key` names the occurrence: pushed again, it gives the number it has and adds nothing.
        """
        if key is not None:
            require_unicode_text(key, "the key of an event")
        with self._database.transaction() as connection:
            standing = connection.execute(
                "SELECT sequence, body FROM events WHERE event_key = ?", (key,)
            ).fetchone()
            if standing is None:
                added = connection.execute(
                    "INSERT INTO events (event_key, body, shown) VALUES (?, ?, ?) RETURNING sequence",
                    (key, event.model_dump_json(), event.text),
                )
                return int(added.fetchone()[0])
            sequence, body = standing
        if HarnessEvent.model_validate_json(body) != event:
            raise UsageError(
                f"Event {sequence} was pushed with the key {key!r} and says something else; expected the same "
                "event again or a key of its own for every occurrence."
            )
        return int(sequence)

    def drain(self, request_id: str) -> Drain:
        """All waiting events for a request, in the order of their sequence numbers.

        For a request that has taken events before: the same ones again, without what came since.
        """
        _known_id(request_id)
        with self._database.transaction() as connection:
            logged = _read(connection, "WHERE request_id = ? ORDER BY sequence", request_id)
            if not logged:
                logged = _read(connection, "WHERE request_id IS NULL ORDER BY sequence")
        return Drain(
            request_id=request_id,
            sequences=tuple(entry.sequence for entry in logged),
            items=self._items(logged),
        )

    def commit(self, drain: Drain) -> None:
        """Take a drain's events out of the queue for good; again for the same request changes nothing.

        `LabError` when another request took one of them meanwhile: this one must not be sent.
        """
        with self._database.transaction() as connection:
            for sequence in drain.sequences:
                row = connection.execute(
                    "SELECT request_id FROM events WHERE sequence = ?", (sequence,)
                ).fetchone()
                if row is None or row[0] not in (None, drain.request_id):
                    taken = "is not in this queue" if row is None else f"already went out with {row[0]}"
                    raise LabError(
                        f"Expected event {sequence} to be waiting for request {drain.request_id}, but it {taken}; "
                        "do not send this request, drain again."
                    )
                connection.execute(
                    "UPDATE events SET request_id = ? WHERE sequence = ?", (drain.request_id, sequence)
                )

    def sent_with(self, request_id: str) -> tuple[ContextItem, ...]:
        """The items that went out with a request, in the same bytes: for the history of later requests."""
        with self._database.transaction() as connection:
            logged = _read(connection, "WHERE request_id = ? ORDER BY sequence", _known_id(request_id))
        return self._items(logged)

    def log(self) -> tuple[LoggedEvent, ...]:
        """Every event since the beginning, apart from any request; approvals are read here, by code."""
        with self._database.transaction() as connection:
            return _read(connection, "ORDER BY sequence")

    def _items(self, logged: Iterable[LoggedEvent]) -> tuple[ContextItem, ...]:
        return tuple(
            ContextItem(
                id=f"event-{entry.sequence:06d}",
                payload=Notification(text=entry.text, event=entry.event.kind.value),
                trust=Trust.UNTRUSTED if entry.event.outside else Trust.TRUSTED,
                owner="harness",
                source="event_queue",
                scope=self._scope,
                order=entry.sequence,
            )
            for entry in logged
        )


def quoted(value: str) -> str:
    r"""A JSON string of one line that holds no angle bracket: it can neither open nor close a tag.

    Special tokens of chat templates are written with angle brackets too (`<|im_end|>`), so none survives.
    What a reader could not see is spelt out (`\u202e`).
    """
    text = visible(json.dumps(value, ensure_ascii=False), newlines=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e")


def _known_id(request_id: str) -> str:
    if not request_id:
        raise UsageError("Expected the id of a request, but it is empty; name the request before it drains.")
    return require_unicode_text(request_id, "the id of a request")


def _read(connection: sqlite3.Connection, clause: str, *values: str) -> tuple[LoggedEvent, ...]:
    # `clause` is one of the literals above, never a value.
    rows = connection.execute(f"SELECT sequence, body, shown, request_id FROM events {clause}", values)  # noqa: S608
    return tuple(
        LoggedEvent(
            sequence=sequence,
            event=HarnessEvent.model_validate_json(body),
            text=shown,
            request_id=request_id,
        )
        for sequence, body, shown, request_id in rows
    )
