"""What a turn tells while it runs, one typed event at a time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from experiments.agent.callform import CallForm, Said
from experiments.agent.progress import Progress
from experiments.agent.refusals import RefusalReason
from experiments.agent.tools import ToolOutcome
from serving.assembler import AssemblyRequest, HandOff, Packet, Rendered, ToolCall, Trajectory
from serving.call import MeasuredCall
from serving.client import Exchange, StreamEvent
from serving.prefix import Prediction


@dataclass(frozen=True, slots=True)
class UnmeasuredCall:
    """A call to a model whose template is not known here: nothing was rendered or predicted."""

    packet: Packet
    exchange: Exchange


FinishedCall = MeasuredCall | UnmeasuredCall


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A request has been sent; `rendered` and `prediction` are None where the template is not known."""

    iteration: int
    """Model calls of this turn so far, from 0."""
    packet: Packet
    rendered: Rendered | None
    prediction: Prediction | None
    request: AssemblyRequest | None = None
    """What the packet was assembled from, for a replay."""
    faults: tuple[str, ...] = ()
    """Names of those that were applied."""


@dataclass(frozen=True, slots=True)
class ModelEvent:
    """Something arrived from the model."""

    event: StreamEvent


@dataclass(frozen=True, slots=True)
class CallFinished:
    """A model call ended well: `said` is what the history keeps of it, the form of its tool calls included."""

    iteration: int
    call: FinishedCall
    said: Said
    cut: tuple[str, ...] = ()
    """Kinds of secrets that the model wrote: cut from `said`, so the raw exchange must not be kept."""


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool runs now; others may run beside it."""

    call: ToolCall
    form: CallForm
    received_id: str | None
    """As the server gave it; the history uses another (`call.id`) where it is missing or taken, which the
    fenced form always is."""
    early: bool = False
    """Whether the model was still writing its message."""


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A call has its result, which come in call order; a failure and a refusal are outcomes too."""

    call: ToolCall
    outcome: ToolOutcome
    """In the words that the model reads."""
    refusal: RefusalReason | None = None
    """Why the call was not run; None: it was."""
    attempts: int = 1
    """How often it was run; a refused call counts one."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The last event of a turn that the model answered; `trajectory` holds all of it."""

    text: str
    trajectory: Trajectory
    progress: Progress
    """For the next turn of the conversation."""


class GaveUpReason(StrEnum):
    """Why a turn ended without an answer."""

    MAX_ITERATIONS = "max_iterations"
    """The model went on calling tools."""
    DEADLINE = "deadline"
    """The time of the turn was over."""
    REPEATED_CALL = "repeated_call"
    """The model made the same call more often than allowed."""
    HAND_OFF = "hand_off"
    """The next packet does not fit (see `HandOff`)."""


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The last event of a turn without an answer; `trajectory` holds its complete steps."""

    reason: GaveUpReason
    sentence: str
    trajectory: Trajectory
    progress: Progress
    """For the next turn of the conversation."""
    hand_off: HandOff | None = None


AgentEvent = CallStarted | ModelEvent | CallFinished | ToolStarted | ToolFinished | Answer | GaveUp
