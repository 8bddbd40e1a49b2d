"""A turn after the fact: what its events come to, for whoever measures turns and does not show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from experiments.agent.callform import CallForm
from experiments.agent.events import (
    AgentEvent,
    Answer,
    CallFinished,
    CallStarted,
    GaveUp,
    GaveUpReason,
    ToolFinished,
    ToolStarted,
)
from serving.assembler import Trajectory
from serving.errors import LabError


@dataclass(frozen=True)
class CollectedTurn:
    """Everything of a turn but what arrived piece by piece."""

    end: Answer | GaveUp
    sent: tuple[CallStarted, ...]
    """Every model call that was sent, one that a deadline cut included."""
    calls: tuple[CallFinished, ...]
    """Every model call that ended well."""
    tools_started: tuple[ToolStarted, ...]
    tools_finished: tuple[ToolFinished, ...]
    """In call order, refused calls included."""
    side_by_side: int
    """Tool runs that began before an earlier one had given its result, by the order of events."""

    @property
    def trajectory(self) -> Trajectory:
        """The conversation with this turn."""
        return self.end.trajectory

    @property
    def answer(self) -> str | None:
        """What the model answered; None where it did not."""
        return self.end.text if isinstance(self.end, Answer) else None

    @property
    def gave_up(self) -> GaveUpReason | None:
        """Why there is no answer; None where there is one."""
        return self.end.reason if isinstance(self.end, GaveUp) else None

    @property
    def forms(self) -> tuple[CallForm, ...]:
        """How each message asked for tools, in order."""
        return tuple(call.said.form for call in self.calls)

    @property
    def empty_messages(self) -> int:
        """Messages that held neither words nor a call."""
        return sum(call.said.empty for call in self.calls)

    @property
    def started_early(self) -> int:
        """Tools that ran while the model was still writing their message."""
        return sum(tool.early for tool in self.tools_started)

    @property
    def ids_equal(self) -> int:
        """Model calls of which the server told the very ids that were rendered here."""
        return sum(getattr(call.call, "ids_agree", None) is True for call in self.calls)

    def calls_by_form(self) -> Counter[CallForm]:
        """Tool calls by the form of their message; a malformed message without a call counts as one."""
        return Counter(
            call.said.form
            for call in self.calls
            for _ in range(max(len(call.said.calls), call.said.form is CallForm.MALFORMED))
        )


def collect(events: Iterable[AgentEvent]) -> CollectedTurn:
    """Run a turn to its end (`run_turn` gives its events) and keep what it came to.

    Raises what the turn raises, and `LabError` for events without an end.
    """
    sent: list[CallStarted] = []
    calls: list[CallFinished] = []
    started: list[ToolStarted] = []
    finished: list[ToolFinished] = []
    running: set[str] = set()
    side_by_side = 0
    end: Answer | GaveUp | None = None
    for event in events:
        match event:
            case CallStarted():
                sent.append(event)
            case CallFinished():
                calls.append(event)
            case ToolStarted():
                side_by_side += bool(running)
                running.add(event.call.id)
                started.append(event)
            case ToolFinished():
                running.discard(event.call.id)
                finished.append(event)
            case Answer() | GaveUp():
                end = event
            case _:
                pass
    if end is None:
        raise LabError("Expected a turn to end with an answer or a reason, and its events end without one.")
    return CollectedTurn(end, tuple(sent), tuple(calls), tuple(started), tuple(finished), side_by_side)
