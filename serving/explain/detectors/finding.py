"""What a detector says, and what a detector is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from serving.explain.causes import MissCause, advice
from serving.explain.difference import Difference


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause with its evidence."""

    cause: MissCause
    detail: str
    """One sentence about these two requests."""
    change: str = ""
    """What would keep the prefix, where the cause's own advice does not fit."""

    @property
    def advice(self) -> str:
        """What would keep the prefix; empty where nothing has to change."""
        return self.change or advice(self.cause)


class Detector(Protocol):
    """Recognises one kind of cause; pure, and silent (None) unless the difference proves it."""

    def __call__(self, difference: Difference, /) -> Finding | None: ...


def quoted(text: str, limit: int = 60) -> str:
    """A text in quotes, control characters spelt out, cut after `limit` characters."""
    return repr(text if len(text) <= limit else f"{text[: limit - 1]}…")
