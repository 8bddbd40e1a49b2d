"""What a tool gives back: text that the model reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The observation of one tool call; with `ok` False, `text` says what was wrong and what to do."""

    text: str
    ok: bool


class ToolError(Exception):
    """A call that cannot be done as asked; its sentence becomes the observation, never leaves the tools."""
