"""What stays the same over the calls of a turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Final

from experiments.agent.approval import Approver
from experiments.agent.callform import FALLBACK_FORMS, CallForm
from experiments.agent.execution import Postcondition, RetryPolicy
from serving.assembler import (
    AssemblyRequest,
    ContextPolicy,
    DeferredTools,
    Fault,
    RequestContext,
    SystemState,
    TaskState,
    TodoItem,
)
from serving.call import DecodeOptions
from serving.redact import PERSONAL, Redactor, SecretKind, SecretRedactor
from serving.stores import ArtifactStore, EventQueue

SECRETS: Final = SecretRedactor(frozenset(SecretKind) - PERSONAL)
"""What opens a door is cut; what names a person stays, for the user's own files are full of it."""


@dataclass(frozen=True)
class Surroundings:
    """What a status bar shows of the world outside the log."""

    system: SystemState = field(default_factory=SystemState)
    todo: tuple[TodoItem, ...] = ()
    call_limits: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Calls that the task allows, by tool; shown and not enforced."""


@dataclass(frozen=True)
class TurnSettings:
    """Who asks whom, under which policy, and how far the loop may go."""

    context: RequestContext
    window: int
    """Tokens that the server really serves."""
    decode: DecodeOptions
    salt: str
    policy: ContextPolicy = field(default_factory=ContextPolicy)
    faults: tuple[Fault, ...] = ()
    build_faults: Callable[[AssemblyRequest], Sequence[Fault]] | None = None
    """Further faults, made for each request; None: none."""
    max_iterations: int = 8
    """Model calls of one turn."""
    deadline_s: float | None = None
    """Seconds from the turn's beginning by `clock`; None: no end."""
    clock: Callable[[], datetime] | None = None
    """None: time stands still at `context.now`."""
    finish: str | None = None
    """The tool whose result is the turn's answer (`finish_tool`), for models that are made to call; None: words are."""
    max_same_calls: int = 3
    """How often one call with equal arguments may be made; one more ends the turn."""
    max_empty: int = 2
    """Empty messages of one turn after which the model is asked to go on; one more is its answer."""
    accept: frozenset[CallForm] = FALLBACK_FORMS
    """Which forms beside the template's own count as calls."""
    token_in: bool = False
    """Whether `caller` sends token ids, so that the answer comes with its tags (`TokenInCaller`)."""
    state: TaskState = field(default_factory=TaskState)
    """Stage, allowed tools and attempts: set by code, read by the assembler's gates and before every run."""
    deferred: DeferredTools = field(default_factory=DeferredTools)
    """Tools of which the head holds one line; a call loads the contract, the next call runs it."""
    approver: Approver | None = None
    """Decides about each call of a consequential tool; None: none of them ever runs."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    postconditions: Mapping[str, Postcondition] = field(default_factory=lambda: MappingProxyType({}))
    redactor: Redactor = SECRETS
    """Over the question, what the model says and every result, before anything is kept or sent."""
    artifacts: ArtifactStore | None = None
    """Where results beyond `longest_result` go; None: they stay whole."""
    longest_result: int = 8_000
    """Characters."""
    events: EventQueue | None = None
    """What happens around the agent; drained into the end of the next request."""
    surroundings: Callable[[], Surroundings] = Surroundings
    """Looked at before every request."""
    run_id: str = ""
    surface: str = ""

    def now(self) -> datetime:
        """The time."""
        return self.context.now if self.clock is None else self.clock()
