"""What the memory store asks of whatever finds secrets and personal data."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Redaction(NamedTuple):
    """A text that may be kept, and the kinds of what was taken out of it, sorted, without the values."""

    text: str
    removed: tuple[str, ...] = ()


class Redactor(Protocol):
    """Takes secrets and personal data out of a text; must give the same answer for the same text."""

    def redact(self, text: str) -> Redaction:
        """The text without what must not be kept; raises rather than let a doubtful text through."""
