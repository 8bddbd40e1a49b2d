"""How long work reports where it is, without knowing who is looking."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """A sink for the stages of long work; implementations must be cheap and never raise."""

    def begin(self, stage: str, *, total: float | None = None, unit: str = "") -> None:
        """Start a stage ("download part 3 of 6"); `total` in `unit` ("bytes", "tensors") when known."""

    def advance(self, amount: float) -> None:
        """Add `amount` units of work done to the current stage."""

    def note(self, text: str) -> None:
        """Show one line that stays on the screen (a choice made, a reason)."""

    def end(self) -> None:
        """Finish the current stage."""


class Silent:
    """A `Progress` that shows nothing."""

    def begin(self, stage: str, *, total: float | None = None, unit: str = "") -> None:
        return

    def advance(self, amount: float) -> None:
        return

    def note(self, text: str) -> None:
        return

    def end(self) -> None:
        return
