"""`AssemblyRequest`: everything one assembly reads, resolved outside the model and handed in."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from serving.assembler.carry import Carry
from serving.assembler.items import Classification, ContextItem
from serving.assembler.kinds import Layer, Stage
from serving.assembler.record import SORTED, Instant, Record
from serving.assembler.status_state import BarState


class Decision(StrEnum):
    """The one decision that the packet serves; each decision gets its own assembly."""

    PLAN = "plan"
    RETRIEVE = "retrieve"
    CHOOSE_TOOL = "choose_tool"
    ANSWER = "answer"


class RequestContext(Record):
    """Who asks, for whom, and when: trusted facts, never taken from a model or a document."""

    tenant: str = Field(min_length=1)
    """Compared exactly with the items'. That nobody is called so cannot be told here: items of other tenants
    leave no trace, so the packet of an unknown tenant is that of one who owns nothing."""
    actor: str = Field(min_length=1)
    groups: Annotated[frozenset[str], SORTED] = frozenset()
    clearance: Classification = Classification.INTERNAL
    subject: str | None = None
    """Whose memories may load; None: the actor's."""
    purpose: str = "assist"
    """The purpose that a memory must have been stored for."""
    locale: str = "en"
    now: Instant
    """The time, given by the caller; the assembler has no clock."""
    facets: dict[str, str] = Field(default_factory=dict)
    """Facts that decide applicability, such as {"product": "3.2"}."""


class RunLimits(Record):
    """What is left of a run; kept by code, so rebuilding a packet cannot reset it."""

    tool_attempts: int | None = Field(default=None, ge=0)
    """Tool calls allowed in the whole run; None: no limit."""
    tool_attempts_used: int = Field(default=0, ge=0)
    started_at: Instant | None = None
    deadline_seconds: float | None = Field(default=None, gt=0)

    def _problem(self) -> str | None:
        if self.deadline_seconds is not None and self.started_at is None:
            return "a deadline counts from started_at, which is missing"
        return None

    def attempts_left(self) -> int | None:
        """Tool calls still allowed, at least 0; None: no limit."""
        if self.tool_attempts is None:
            return None
        return max(0, self.tool_attempts - self.tool_attempts_used)

    def seconds_left(self, now: Instant) -> float | None:
        """Seconds to the deadline, at least 0; None: no deadline."""
        if self.deadline_seconds is None or self.started_at is None:
            return None
        return max(0.0, self.deadline_seconds - (now - self.started_at).total_seconds())


class TaskState(Record):
    """The authoritative state of the run, as far as it decides what a packet may hold."""

    limits: RunLimits = RunLimits()
    allowed_tools: Annotated[frozenset[str], SORTED] | None = None
    """Names of the tools that the run allows; None: all that are offered."""
    stage: Stage | None = None
    """Offers only the tools of this stage (`stages.py`); None: of any."""
    command: str | None = Field(default=None, min_length=1)
    """Name of the one tool that stage `action` is about."""
    approved: bool = False
    """Whether `command` may run. Set by code from an approval it has checked: no text in the request, whoever
    wrote it, is read for one."""

    def _problem(self) -> str | None:
        if self.approved and self.command is None:
            return (
                "an approval holds for one command, but no command is named; name it or leave approved false"
            )
        return None

    @property
    def approved_command(self) -> str | None:
        """The command if it is approved."""
        return self.command if self.approved else None


class MissingReason(StrEnum):
    """Why an optional source gave nothing."""

    FAILED = "failed"
    TIMED_OUT = "timed_out"
    NOT_CONFIGURED = "not_configured"


class MissingSource(Record):
    """An optional source that failed: the packet goes out without it, and the manifest says so."""

    layer: Layer
    source: str
    reason: MissingReason


class Retrieval(Record):
    """How the candidates were found; the query itself may be personal, so only its hash travels."""

    query_sha256: str
    filters: tuple[tuple[str, str], ...] = ()


class AssemblyRequest(Record):
    """One call's worth of input.

    `candidates` and `tools` are sets: their order changes nothing. `history` is a log: its items are sent
    in its order, at their place, and a later request extends it. Turns stand in `history`, tool contracts
    in `tools`; texts that change (evidence, status) are candidates and go to the dynamic suffix, or stand in
    `history` once they were sent and must stay where they are.
    """

    context: RequestContext
    candidates: tuple[ContextItem, ...] = ()
    history: tuple[ContextItem, ...] = ()
    tools: tuple[ContextItem, ...] = ()
    window: int = Field(gt=0)
    """Tokens that the server really serves (`max_model_len`), not a number from a catalogue."""
    max_output: int = Field(ge=0)
    overhead: int = Field(default=0, ge=0)
    """Tokens kept back for what no renderer counts; template framing is counted and needs none."""
    decision: Decision = Decision.ANSWER
    state: TaskState = TaskState()
    missing: tuple[MissingSource, ...] = ()
    retrieval: Retrieval | None = None
    carry: Carry = Carry()
    """`Packet.carry` of the run's last packet: what was shown before and must be shown again."""
    bar: BarState | None = None
    """What the log does not hold and a status bar shows; None: the time, and all else unknown."""
    request_id: str = ""
    run_id: str = ""
    step_id: str = ""
    surface: str = ""
    """The model and API the packet is for, in words that a manifest can show."""

    def _problem(self) -> str | None:
        if self.budget <= 0:
            return (
                f"the window must exceed max_output and overhead, but {self.window} − {self.max_output} − "
                f"{self.overhead} leaves {self.budget} tokens; raise the window or lower the reserve"
            )
        return None

    @property
    def budget(self) -> int:
        """Tokens that the rendered packet may have: window − max_output − overhead."""
        return self.window - self.max_output - self.overhead
