"""The place of one engine: filled on entry, emptied on exit, filled anew when the engine has died."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import Final, Generic

from pydantic import JsonValue

from experiments.framework.records import RunFolder
from experiments.framework.study import Serve, Served, TargetT
from serving.errors import LabError

DYING_S: Final = 5.0
"""How long after a failed attempt an engine may still turn out to be dead: calls fail before processes are gone."""
_TICK_S: Final = 0.2


@dataclass(frozen=True)
class Filled(Generic[TargetT]):
    """What is in the slot at one moment."""

    served: Served[TargetT]
    environment: str
    """Key into `environments` of run.json."""
    number: int
    """Of this engine among those that the slot has had, from 0."""


class EngineSlot(Generic[TargetT]):
    """Starts the engine of one group of trials and notes what it is; threads may share it.

    Once left, nothing starts in it again, whatever a thread that is late asks for.
    """

    def __init__(self, serve: Serve[TargetT], factors: Mapping[str, JsonValue], run: RunFolder) -> None:
        self._serve, self._factors, self._run = serve, factors, run
        self._lock = Lock()
        self._stack = ExitStack()
        self._deaths = 0
        self._closed = False
        self._filled = self._start(0)

    def __enter__(self) -> EngineSlot[TargetT]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._closed = True
            self._stack.__exit__(kind, error, trace)

    @property
    def filled(self) -> Filled[TargetT]:
        """The engine there is; waits while one is being restarted."""
        with self._lock:
            return self._filled

    def restart(self) -> None:
        """Stop the engine and start another; what it held in its cache is gone."""
        with self._lock:
            self._refill()

    def mend(self, failed: Filled[TargetT]) -> str | None:
        """After an attempt on `failed` failed for the machinery's sake: restart the engine if it has died.

        Returns why it died, to the one caller that restarted it; None to all others, and where it lives. Raises:
        LabError when the engine of one group has died twice.
        """
        deadline = time.monotonic() + DYING_S
        while True:
            with self._lock:
                if self._closed or self._filled.number != failed.number or failed.served.death is None:
                    return None
                cause = failed.served.death()
                if cause is not None:
                    self._deaths += 1
                    if self._deaths > 1:
                        raise LabError(
                            f"The engine has died twice in one group of trials. {cause} What is finished is kept: "
                            "mend it and run the same command again."
                        )
                    self._refill()
                    return cause
            if time.monotonic() >= deadline:
                return None
            time.sleep(_TICK_S)

    def _refill(self) -> None:
        self._stack.close()
        self._filled = self._start(self._filled.number + 1)

    def _start(self, number: int) -> Filled[TargetT]:
        with ExitStack() as starting:
            served = starting.enter_context(self._serve(self._factors))
            environment = self._run.note_environment(self._factors, served.environment)
            self._stack = starting.pop_all()
        return Filled(served, environment, number)
