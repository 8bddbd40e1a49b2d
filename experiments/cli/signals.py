"""What Ctrl-C and a kill do to a command: every `with` is left, so that what was started ends too.

SIGINT is set beside SIGTERM: a command that a script started in the background inherits it as ignored.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import NoReturn


def ending_politely() -> AbstractContextManager[None]:
    """Inside, SIGTERM ends the work as Ctrl-C does."""
    return _answering(signal.default_int_handler)


def ending_on_sigterm() -> AbstractContextManager[None]:
    """Inside, SIGTERM ends the program (exit code 143), and Ctrl-C only what catches `KeyboardInterrupt`."""

    def leave(number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    return _answering(leave)


@contextmanager
def _answering(sigterm: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    handlers = {signal.SIGTERM: sigterm, signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
