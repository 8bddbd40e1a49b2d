"""What the loop works with: something that makes model calls, and something that runs tools."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Protocol

from experiments.agent.events import FinishedCall
from experiments.agent.tools import ToolOutcome
from serving.assembler import (
    AssemblyRequest,
    ContextPolicy,
    Fault,
    HandOff,
    Packet,
    Rendered,
    ToolContract,
    ToolSpec,
)
from serving.call import DecodeOptions
from serving.client import Exchange, StreamEvent
from serving.prefix import Prediction


class Started(Protocol):
    """A call on its way: `serving.call.StartedCall`, or the same without a template."""

    @property
    def packet(self) -> Packet: ...

    @property
    def rendered(self) -> Rendered | None: ...

    @property
    def prediction(self) -> Prediction | None: ...

    def __iter__(self) -> Iterator[StreamEvent]: ...

    def finish(self) -> FinishedCall: ...

    def cancel(self) -> Exchange: ...


class ModelCaller(Protocol):
    """What makes the calls: `serving.call.Caller`, or the same without a template."""

    def start(
        self,
        request: AssemblyRequest,
        policy: ContextPolicy,
        decode: DecodeOptions,
        *,
        salt: str,
        faults: Sequence[Fault] = (),
    ) -> Started | HandOff: ...


class Tools(Protocol):
    """What runs the calls, from several threads at once; nothing that a model passes to `run` may raise."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]: ...

    @property
    def contracts(self) -> tuple[ToolContract, ...]:
        """One for every tool that can run, deferred ones included."""

    def run(self, name: str, arguments: str, *, cancel: threading.Event | None = None) -> ToolOutcome:
        """Run one call; `cancel`, once set, asks it to stop and to say so in its outcome."""
