"""Proving a server: predicted against reported, lies by name, and what could not be shown."""

from __future__ import annotations

from serving.probe.prove.claims import Claim, Compared, Finding, ServerProof, Verdict
from serving.probe.prove.lies import Case, Lie, NamedLie, name_lies
from serving.probe.prove.prove import DEFAULT_BUDGET_S, prove_server

__all__ = [
    "DEFAULT_BUDGET_S",
    "Case",
    "Claim",
    "Compared",
    "Finding",
    "Lie",
    "NamedLie",
    "ServerProof",
    "Verdict",
    "name_lies",
    "prove_server",
]
