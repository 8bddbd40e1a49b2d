"""What a server can tell, found by asking it."""

from __future__ import annotations

from serving.probe.capabilities import CanaryCall, Fact, ServedModel, ServerCapabilities
from serving.probe.facts import ServerFacts, read_server_facts
from serving.probe.server import probe_server

__all__ = [
    "CanaryCall",
    "Fact",
    "ServedModel",
    "ServerCapabilities",
    "ServerFacts",
    "probe_server",
    "read_server_facts",
]
