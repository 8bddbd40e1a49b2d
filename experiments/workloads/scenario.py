"""What a scenario is: content made from a seed, one decision whose right answer is known, and its grader."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from pydantic import Field

from experiments.workloads.grading import Grade
from serving.assembler import (
    AssemblyRequest,
    BarState,
    ContextItem,
    RequestContext,
    ToolCall,
    ToolSpec,
    Trajectory,
    UserTurn,
)
from serving.assembler.record import Instant, Record

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
"""The time at which every scenario is asked, unless it is about time."""


class Scenario(Record, ABC):
    """One question in its context; equal parameters and seeds give equal bytes, other seeds other words.

    The answer follows from the content alone, names and numbers come from the seed, and nothing but what the
    answer follows from holds it: a model that gets it right has read it.
    """

    seed: int
    trajectory: Trajectory
    """Up to and including the question; the decision is the call after its last turn."""
    items: tuple[ContextItem, ...] = ()
    """Candidates beside the conversation: documents, a count made by code."""
    expected: str
    choices: tuple[str, ...] = ()
    """What a constrained answer may be; empty: the answer is open."""
    tenant: str = Field(default="lab", min_length=1)
    now: Instant = NOW

    @abstractmethod
    def grade(self, text: str, calls: Sequence[ToolCall] = ()) -> Grade:
        """Grade what a model answered: its text, or the tools it called; strict, and with the reason."""

    @abstractmethod
    def describe(self) -> str:
        """One line: what is asked, how hard it is made, what is right."""

    @abstractmethod
    def distractors(self) -> Iterator[str]:
        """Every text that does not lead to the answer, and so must not hold it."""

    @property
    def question(self) -> str:
        """The last user turn."""
        turn = self.trajectory.turns[-1]
        return turn.text if isinstance(turn, UserTurn) else ""

    def context(self) -> RequestContext:
        """Who asks, and when."""
        return RequestContext(tenant=self.tenant, actor="agent", now=self.now)

    def request(
        self,
        *,
        window: int,
        max_output: int,
        extra: Sequence[ContextItem] = (),
        bar: BarState | None = None,
        run_id: str = "",
        surface: str = "",
    ) -> AssemblyRequest:
        """The request of the decision; `extra` are further candidates, such as a status bar of a study."""
        return self.trajectory.request(
            self.trajectory.calls - 1,
            context=self.context(),
            window=window,
            max_output=max_output,
            extra=(*self.items, *extra),
            bar=bar,
            run_id=run_id,
            surface=surface,
        )


def draws(kind: str, seed: int) -> random.Random:
    """The source of all choices of a scenario: of its kind and seed, and not of its difficulty.

    So the same seed tells the same story at every depth, length or limit.
    """
    return random.Random(f"{kind}/{seed}")  # noqa: S311 - a story, not a secret


def tool(name: str, description: str, /, **arguments: str) -> ToolSpec:
    """A tool with text arguments, all required; the values describe them."""
    return ToolSpec(
        name=name,
        description=description,
        parameters={
            "type": "object",
            "properties": {
                argument: {"type": "string", "description": text} for argument, text in arguments.items()
            },
            "required": list(arguments),
        },
    )
