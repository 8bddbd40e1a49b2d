"""What outlives a request: raw tool output, memories, and the events around the agent.

    from serving.stores import ArtifactStore, EventQueue, MemoryStore

The assembler reads what these give it and never writes here. No store has a clock: the caller gives the time.
"""

from __future__ import annotations

from serving.redact import Redaction, Redactor
from serving.stores.artifacts import ArtifactRef, ArtifactStore
from serving.stores.events import Drain, EventKind, EventQueue, HarnessEvent, LoggedEvent
from serving.stores.memories import LoadedMemories, MemoryStore, Refused, Withheld
from serving.stores.memory_policy import MemoryDraft, MemoryPolicy, Refusal, StoredMemory
from serving.stores.tool_output import observe, observed

__all__ = [
    "ArtifactRef",
    "ArtifactStore",
    "Drain",
    "EventKind",
    "EventQueue",
    "HarnessEvent",
    "LoadedMemories",
    "LoggedEvent",
    "MemoryDraft",
    "MemoryPolicy",
    "MemoryStore",
    "Redaction",
    "Redactor",
    "Refusal",
    "Refused",
    "StoredMemory",
    "Withheld",
    "observe",
    "observed",
]
