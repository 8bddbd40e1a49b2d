"""An engine that somebody else runs: any URL that speaks the OpenAI protocol."""

from __future__ import annotations

from serving.engine.backends.base import Availability, BackendName, BackendPlan
from serving.engine.config import Dtype, EngineConfig
from serving.engine.machine import Machine
from serving.errors import UsageError


class AttachBackend:
    """No process: the lab only speaks to a server that is already there (`serving.engine.attach`)."""

    name = BackendName.ATTACH

    def availability(self, machine: Machine) -> Availability:
        """Always usable when asked for; never chosen by itself, because only the user knows the URL."""
        return Availability(
            usable=True, reason="no process is started; the server at the URL is used as it is"
        )

    def dtype(self, config: EngineConfig, machine: Machine) -> Dtype:
        """Unknown from outside; what the server chose."""
        return Dtype.AUTO

    def plan(self, config: EngineConfig, machine: Machine) -> BackendPlan:
        """There is nothing to start."""
        raise UsageError(
            "The attach backend starts no engine, and a start was asked for: give the server's URL instead, "
            "or choose cuda, metal or cpu."
        )
