"""Keeping the event loop free to stamp bytes while many streams want the processor."""

from __future__ import annotations

import asyncio


class Turnstile:
    """Lets one task at a time go on to a piece of work, with a look at the sockets in between.

    A loop runs everything that is ready before it polls again. With 64 streams to parse, or 64 requests
    to build, the next bytes would be seen only after all of them, and be stamped late by as much. Tasks
    that `await turn()` first are let through one per poll, so a stamp is late by one piece of work at most.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def turn(self) -> None:
        """Wait for this task's turn; do the work right after, without awaiting in between."""
        async with self._lock:
            await asyncio.sleep(0)
