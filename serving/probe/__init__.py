"""What a server can tell, found by asking it."""

from __future__ import annotations

from serving.probe.capabilities import CanaryCall, Fact, ServedModel, ServerCapabilities
from serving.probe.events import find_kv_events
from serving.probe.facts import ServerFacts, read_server_facts
from serving.probe.server import probe_server
from serving.probe.server_info import ServerInfo, read_server_info

__all__ = [
    "CanaryCall",
    "Fact",
    "ServedModel",
    "ServerCapabilities",
    "ServerFacts",
    "ServerInfo",
    "find_kv_events",
    "probe_server",
    "read_server_facts",
    "read_server_info",
]
