"""What a rendering took from the ones before it, and what its template did to messages that stayed the same."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class WholeReason(StrEnum):
    """Why every token had to be encoded."""

    SWITCHED_OFF = "switched_off"
    """The renderer was made so."""
    NOTHING_KEPT = "nothing_kept"
    """No earlier rendering had a part of this text."""
    NO_CUT = "no_cut"
    """The text holds no added token, and anywhere else tokens may merge across a cut."""
    TOKENIZER_NOT_PROVEN = "tokenizer_not_proven"
    """The tokenizer gives no place at which two parts, encoded alone, are proven to give the whole."""


class RewriteKind(StrEnum):
    """How a template's text for a message that stayed the same differs from what it was."""

    SHORTENED = "shortened"
    """A part was left out, as templates do with reasoning before the last user message."""
    EXTENDED = "extended"
    """Something was put in, as templates do that move the tools to the last user message."""
    CHANGED = "changed"
    """Neither."""
    JOINED = "joined"
    """Only its end: the message behind it is joined to it (consecutive tool results in one turn)."""


class Rewritten(NamedTuple):
    """A message of the packet, by index, and what the template did to its text although it stayed the same."""

    message: int
    kind: RewriteKind


@dataclass(frozen=True, slots=True)
class Reuse:
    """How much of a rendering came from the ones before; depends on what was rendered before, as no id does."""

    reused: int
    """Tokens taken over."""
    encoded: int
    """Tokens encoded for this rendering."""
    whole: WholeReason | None = None
    """Set when all tokens had to be encoded."""
    rewritten: tuple[Rewritten, ...] = ()
    """Unchanged messages that the template renders otherwise than before; known where spans were asked for."""
