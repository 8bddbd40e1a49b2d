"""The calls of a null arm: every request made anew from a stored copy before it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.agent.protocols import ModelCaller, Started
from experiments.framework.measured import rebuilt
from serving.assembler import AssemblyRequest, ContextPolicy, Fault, HandOff
from serving.call import DecodeOptions


@dataclass(frozen=True)
class RebuildingCaller:
    """Another caller's calls, each from a stored copy of its request with the unordered part in another order."""

    caller: ModelCaller

    def start(
        self,
        request: AssemblyRequest,
        policy: ContextPolicy,
        decode: DecodeOptions,
        *,
        salt: str,
        faults: Sequence[Fault] = (),
    ) -> Started | HandOff:
        """As the caller's."""
        return self.caller.start(rebuilt(request), policy, decode, salt=salt, faults=faults)
