"""What a server can tell, found by asking it."""

from __future__ import annotations

from serving.probe.capabilities import CanaryCall, Fact, ServedModel, ServerCapabilities
from serving.probe.server import probe_server

__all__ = ["CanaryCall", "Fact", "ServedModel", "ServerCapabilities", "probe_server"]
