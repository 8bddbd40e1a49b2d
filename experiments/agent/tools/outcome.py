"""What a tool gives back: text that the model reads, and what code may rely on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from serving.assembler.typed_observation import VerifiedValue

Clean: TypeAlias = Callable[[str], str]
"""Takes secrets out of a whole text, before a tool cuts it: half a key is no key, and no format finds it."""


def as_it_is(text: str) -> str:
    """Cleans nothing."""
    return text


class Failure(StrEnum):
    """Why a call was not done; the error class of a typed observation."""

    UNKNOWN_TOOL = "unknown_tool"
    WRONG_ARGUMENTS = "wrong_arguments"
    """No JSON, a wrong type, something missing or unknown."""
    REFUSED = "refused"
    """Understood, and nothing that this tool does: a path outside, an expression that is no arithmetic."""
    NOT_FOUND = "not_found"
    LIMIT = "limit"
    """Too large, too long, too often; a program that was ended for what it used."""
    PROGRAM = "program"
    """A program of the model's ran and ended with an error of its own."""
    CANCELLED = "cancelled"
    POSTCONDITION = "postcondition"
    """Done, and what must hold after it does not."""
    ISOLATION = "isolation"
    """Nothing ran, because it could not be isolated this time."""


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The observation of one tool call; with `ok` False, `text` says what was wrong and what to do."""

    text: str
    ok: bool
    failure: Failure | None = None
    verified: Mapping[str, VerifiedValue] = field(default_factory=dict, hash=False)
    """What `text` says, as fields that code computed: what a typed observation may show as verified."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a tool that did its work says."""

    text: str
    verified: Mapping[str, VerifiedValue] = field(default_factory=dict, hash=False)


class ToolError(Exception):
    """A call that cannot be done as asked; its sentence becomes the observation, never leaves the tools."""

    def __init__(
        self,
        sentence: str,
        failure: Failure = Failure.REFUSED,
        verified: Mapping[str, VerifiedValue] | None = None,
    ) -> None:
        super().__init__(sentence)
        self.failure = failure
        self.verified = verified or {}
