"""The place of one engine: filled on entry, emptied on exit, filled anew by a restart."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Generic

from pydantic import JsonValue

from experiments.framework.records import RunFolder
from experiments.framework.study import Serve, TargetT


class EngineSlot(Generic[TargetT]):
    """Starts the engine of one group of trials and notes what it is; `restart` brings another like it."""

    def __init__(self, serve: Serve[TargetT], factors: Mapping[str, JsonValue], run: RunFolder) -> None:
        self._serve, self._factors, self._run = serve, factors, run
        self._stack = ExitStack()
        self._start()

    def __enter__(self) -> EngineSlot[TargetT]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def restart(self) -> None:
        """Stop the engine and start another; what it held in its cache is gone."""
        self._stack.close()
        self._start()

    def _start(self) -> None:
        with ExitStack() as starting:
            served = starting.enter_context(self._serve(self._factors))
            self.target = served.target
            self.environment = self._run.note_environment(self._factors, served.environment)
            self._stack = starting.pop_all()
