"""The agent loop: assemble, call, validate, execute, record, until the model answers (Yao et al. 2022).

The history only grows: what the model said goes back as it came, so each request extends the one before.
`ctxlab chat` and `ctxlab agent` run this one loop; they differ in their settings alone.
"""

from __future__ import annotations

from collections.abc import Generator

from experiments.agent.callform import CallForm, Said
from experiments.agent.events import (
    AgentEvent,
    Answer,
    CallFinished,
    FinishedCall,
    GaveUp,
    GaveUpReason,
)
from experiments.agent.progress import Progress
from experiments.agent.protocols import ModelCaller, Tools
from experiments.agent.settings import TurnSettings
from experiments.agent.step import StepOutcome
from experiments.agent.turnwork import TurnWork, last_id
from serving.assembler import AssistantTurn, HandOff, ToolStep, Trajectory, Turn, UserTurn
from serving.errors import LabError
from serving.text import require_unicode_text

UNREADABLE_CALL = (
    "Your last message holds a tool call that cannot be read. Write it again, in the form that your "
    "instructions give, or answer in words."
)
"""Said to the model, as a user turn, after a malformed message without a single call to answer."""

EMPTY_MESSAGE = "Your last message is empty. Go on with what is not done yet, or answer in words."
"""Said to the model, as a user turn, after a message that holds neither words nor a call."""


class CallFailedError(LabError):
    """The server or the network failed a call of a turn; `settings.salt` is not to be used again."""

    def __init__(self, call: FinishedCall, trajectory: Trajectory) -> None:
        error = call.exchange.error
        super().__init__("The model call failed." if error is None else error.sentence)
        self.call = call
        self.trajectory = trajectory
        """The complete steps before it."""


def run_turn(
    caller: ModelCaller,
    tools: Tools,
    trajectory: Trajectory,
    question: str,
    settings: TurnSettings,
    *,
    progress: Progress | None = None,
) -> Generator[AgentEvent, None, None]:
    """Answer one user message; the last event is `Answer` or `GaveUp` and carries the new trajectory.

    The tools offered are those of `trajectory`; of the calls of one message, those that only read run side by
    side, and may start while the model still writes (`StepTools.offer`). A consequential, writing or
    non-idempotent tool waits for the end of the message, so a message that fails has changed nothing.
    `trajectory` is not changed: a turn that is closed, interrupted or failed is in no history, its running
    tools are cancelled, and only what a writing tool did in an earlier message of it stays done. Closing the
    generator cancels the running call; then its salt is not to be used again, and neither is it after a
    deadline. `progress` is that of the turn before, where contracts were loaded or events came. Raises
    `CallFailedError`, and what the caller raises (`InequalityError`).
    """
    require_unicode_text(question, "the question")
    work = TurnWork(tools, settings)
    now = settings.now()
    trajectory = _extended(trajectory, UserTurn(text=settings.redactor.redact(question).text))
    progress = (progress or Progress(started_at=now)).next_turn(now).at(last_id(trajectory), now)
    empty = 0
    for iteration in range(settings.max_iterations):
        if work.expired(progress):
            yield _out_of_time(settings, trajectory, progress)
            return
        progress = work.with_events(progress, trajectory)
        request = work.request(progress, trajectory)
        faults = work.faults(request)
        started = caller.start(request, settings.policy, settings.decode, salt=settings.salt, faults=faults)
        if isinstance(started, HandOff):
            yield GaveUp(GaveUpReason.HAND_OFF, hand_off_sentence(started), trajectory, progress, started)
            return
        step = work.step(progress, trajectory)
        try:
            names = tuple(fault.name for fault in faults)
            in_time = yield from work.stream(
                iteration, started, step, progress, request=request, fault_names=names
            )
            if not in_time:
                yield _out_of_time(settings, trajectory, progress)
                return
            call = started.finish()
            if call.exchange.error is not None:
                raise CallFailedError(call, trajectory)
            trajectory = trajectory.model_copy(update={"carry": started.packet.carry})
            said, cut = work.said(call, progress, trajectory)
            yield CallFinished(iteration, call, said, cut)
            if said.empty and empty < settings.max_empty:
                empty += 1
                trajectory, progress = _asked_again(trajectory, progress, said, EMPTY_MESSAGE)
                continue
            if said.form is CallForm.NONE:
                last = AssistantTurn(text=said.text, reasoning=said.reasoning)
                yield Answer(said.text, _extended(trajectory, last), progress)
                return
            if not said.calls:
                trajectory, progress = _asked_again(trajectory, progress, said, UNREADABLE_CALL)
                continue
            outcome = yield from step.run(said)
        finally:
            step.cancel()  # what still runs, runs for nobody: its message failed, or it began another call
        trajectory = _extended(trajectory, _tool_step(said, outcome))
        progress = work.after(progress, trajectory, outcome)
        if (answer := _finished(said, outcome, settings.finish)) is not None:
            yield Answer(answer, trajectory, progress)
            return
        if outcome.repeated:
            yield GaveUp(
                GaveUpReason.REPEATED_CALL,
                f"Expected new calls, and the model made the same one more than {settings.max_same_calls} "
                "times: ask again in another way.",
                trajectory,
                progress,
            )
            return
    yield GaveUp(
        GaveUpReason.MAX_ITERATIONS,
        f"Expected an answer within {settings.max_iterations} model calls, and there is none: "
        "ask again in another way, or allow more.",
        trajectory,
        progress,
    )


def hand_off_sentence(hand_off: HandOff) -> str:
    """Why a packet was not sent, with the numbers and what takes the room."""
    largest = ", ".join(f"{item.id} {item.tokens:,}" for item in hand_off.largest)
    return (
        f"Expected a prompt of at most {hand_off.budget:,} tokens, and this one has {hand_off.needed:,} "
        f"({hand_off.reason.value}; the largest parts: {largest}): begin anew, or ask for a shorter answer."
    )


def _tool_step(said: Said, outcome: StepOutcome) -> ToolStep:
    return ToolStep(
        calls=tuple(received.call for received in said.calls),
        results=outcome.results,
        text=said.text,
        reasoning=said.reasoning,
    )


def _finished(said: Said, outcome: StepOutcome, finish: str | None) -> str | None:
    """The result of the call that ends the turn; a failed one ends nothing."""
    ending = {received.call.id for received in said.calls if received.call.name == finish}
    ended = (one.content for one in outcome.results if one.call_id in ending and not one.failed)
    return next(ended, None)


def _asked_again(
    trajectory: Trajectory, progress: Progress, said: Said, why: str
) -> tuple[Trajectory, Progress]:
    """With what was said and the loop's request in the user's place, which has the time of the user's question."""
    answer = AssistantTurn(text=said.text, reasoning=said.reasoning)
    longer = _extended(_extended(trajectory, answer), UserTurn(text=why))
    return longer, progress.at(last_id(longer), progress.started_at)


def _out_of_time(settings: TurnSettings, trajectory: Trajectory, progress: Progress) -> GaveUp:
    return GaveUp(
        GaveUpReason.DEADLINE,
        f"Expected an answer within {settings.deadline_s:g} s, and the time is over: allow more, or ask for less.",
        trajectory,
        progress,
    )


def _extended(trajectory: Trajectory, turn: Turn) -> Trajectory:
    return trajectory.model_copy(update={"turns": (*trajectory.turns, turn)})
