"""A minimal ReAct loop: call the model, run the tools it asks for, append, until it answers (Yao et al. 2022).

The history only grows: what the model said goes back as it came, so each request extends the one before.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from experiments.agent.callform import Said, read_answer
from experiments.agent.events import (
    AgentEvent,
    Answer,
    CallFinished,
    CallStarted,
    FinishedCall,
    GaveUp,
    GaveUpReason,
    ModelEvent,
    ToolFinished,
    ToolStarted,
)
from experiments.agent.tools import ToolOutcome
from serving.assembler import (
    AssemblyRequest,
    AssistantTurn,
    ContextPolicy,
    Fault,
    HandOff,
    Packet,
    Rendered,
    RequestContext,
    ToolResult,
    ToolSpec,
    ToolStep,
    Trajectory,
    Turn,
    UserTurn,
)
from serving.call import DecodeOptions
from serving.client import Exchange, StreamEvent
from serving.errors import LabError
from serving.prefix import Prediction
from serving.text import require_unicode_text


class Started(Protocol):
    """A call on its way: `serving.call.StartedCall`, or the same without a template."""

    @property
    def packet(self) -> Packet: ...

    @property
    def rendered(self) -> Rendered | None: ...

    @property
    def prediction(self) -> Prediction | None: ...

    def __iter__(self) -> Iterator[StreamEvent]: ...

    def finish(self) -> FinishedCall: ...

    def cancel(self) -> Exchange: ...


class ModelCaller(Protocol):
    """What makes the calls: `serving.call.Caller`, or the same without a template."""

    def start(
        self,
        request: AssemblyRequest,
        policy: ContextPolicy,
        decode: DecodeOptions,
        *,
        salt: str,
        faults: Sequence[Fault] = (),
    ) -> Started | HandOff: ...


class Tools(Protocol):
    """What runs the calls; nothing that a model passes to `run` may raise."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]: ...

    def run(self, name: str, arguments: str) -> ToolOutcome: ...


@dataclass(frozen=True)
class TurnSettings:
    """What stays the same over the calls of a turn."""

    context: RequestContext
    window: int
    """Tokens that the server really serves."""
    decode: DecodeOptions
    salt: str
    policy: ContextPolicy = field(default_factory=ContextPolicy)
    faults: tuple[Fault, ...] = ()
    max_iterations: int = 8
    """Model calls of one turn."""
    accept_fenced: bool = True
    """Whether JSON between code fences counts as a tool call (`CallForm.FENCED`)."""
    run_id: str = ""
    surface: str = ""


class CallFailedError(LabError):
    """The server or the network failed a call of a turn; `settings.salt` is not to be used again."""

    def __init__(self, call: FinishedCall, trajectory: Trajectory) -> None:
        error = call.exchange.error
        super().__init__("The model call failed." if error is None else error.sentence)
        self.call = call
        self.trajectory = trajectory
        """The complete steps before it."""


def run_turn(
    caller: ModelCaller, tools: Tools, trajectory: Trajectory, question: str, settings: TurnSettings
) -> Generator[AgentEvent, None, None]:
    """Answer one user message; the last event is `Answer` or `GaveUp` and carries the new trajectory.

    The tools offered are those of `trajectory`; those called run one after another, in the order of the
    calls. `trajectory` is not changed, so a turn that is closed, interrupted or failed has not happened.
    Closing the generator cancels the running call; then its salt is not to be used again. Raises
    `CallFailedError`, and what the caller raises (`InequalityError`).
    """
    require_unicode_text(question, "the question")
    trajectory = _extended(trajectory, UserTurn(text=question))
    for iteration in range(settings.max_iterations):
        request = _request(trajectory, settings)
        started = caller.start(
            request, settings.policy, settings.decode, salt=settings.salt, faults=settings.faults
        )
        if isinstance(started, HandOff):
            yield GaveUp(GaveUpReason.HAND_OFF, hand_off_sentence(started), trajectory, started)
            return
        call = yield from _one_call(started, iteration)
        if call.exchange.error is not None:
            raise CallFailedError(call, trajectory)
        trajectory = trajectory.model_copy(update={"carry": started.packet.carry})
        said = read_answer(
            call.exchange,
            tool_names=[tool.name for tool in trajectory.tools],
            used_ids=_call_ids(trajectory),
            accept_fenced=settings.accept_fenced,
        )
        yield CallFinished(iteration, call, said)
        if not said.calls:
            answered = _extended(trajectory, AssistantTurn(text=said.text, reasoning=said.reasoning))
            yield Answer(said.text, answered)
            return
        results = yield from _run_tools(tools, said)
        trajectory = _extended(trajectory, _step(said, results))
    yield GaveUp(
        GaveUpReason.MAX_ITERATIONS,
        f"Expected an answer within {settings.max_iterations} model calls, and the model still calls tools: "
        "ask again in another way, or allow more.",
        trajectory,
    )


def hand_off_sentence(hand_off: HandOff) -> str:
    """Why a packet was not sent, with the numbers and what takes the room."""
    largest = ", ".join(f"{item.id} {item.tokens:,}" for item in hand_off.largest)
    return (
        f"Expected a prompt of at most {hand_off.budget:,} tokens, and this one has {hand_off.needed:,} "
        f"({hand_off.reason.value}; the largest parts: {largest}): begin anew, or ask for a shorter answer."
    )


def _one_call(started: Started, iteration: int) -> Generator[AgentEvent, None, FinishedCall]:
    try:
        yield CallStarted(iteration, started.packet, started.rendered, started.prediction)
        for event in started:
            yield ModelEvent(event)
    except BaseException:
        # Closed by whoever listens, or interrupted while waiting: nobody will read the rest.
        started.cancel()
        raise
    return started.finish()


def _run_tools(tools: Tools, said: Said) -> Generator[AgentEvent, None, tuple[ToolResult, ...]]:
    results: list[ToolResult] = []
    for received in said.calls:
        call = received.call
        yield ToolStarted(call, said.form, received.received_id)
        outcome = tools.run(call.name, call.arguments)
        yield ToolFinished(call, outcome)
        results.append(ToolResult(call_id=call.id, content=outcome.text, failed=not outcome.ok))
    return tuple(results)


def _step(said: Said, results: tuple[ToolResult, ...]) -> ToolStep:
    return ToolStep(
        calls=tuple(received.call for received in said.calls),
        results=results,
        text=said.text,
        reasoning=said.reasoning,
    )


def _request(trajectory: Trajectory, settings: TurnSettings) -> AssemblyRequest:
    return trajectory.request(
        trajectory.calls - 1,
        context=settings.context,
        window=settings.window,
        max_output=settings.decode.max_tokens,
        run_id=settings.run_id,
        surface=settings.surface,
    )


def _extended(trajectory: Trajectory, turn: Turn) -> Trajectory:
    return trajectory.model_copy(update={"turns": (*trajectory.turns, turn)})


def _call_ids(trajectory: Trajectory) -> list[str]:
    return [call.id for turn in trajectory.turns if isinstance(turn, ToolStep) for call in turn.calls]
