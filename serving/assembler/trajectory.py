"""Agent conversations as requests: a fixed run, replayed call by call, each call extending the one before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from serving.assembler.carry import Carry
from serving.assembler.items import ContextItem
from serving.assembler.messages import Message, ToolSpec
from serving.assembler.payloads import (
    AssistantTurn,
    Authority,
    Instruction,
    ToolContract,
    ToolResult,
    ToolStep,
    Turn,
    UserTurn,
    pairing_problem,
)
from serving.assembler.record import Record
from serving.assembler.request import AssemblyRequest, Decision, RequestContext, TaskState
from serving.assembler.status_state import BarState
from serving.errors import UsageError

SYSTEM_ID = "system"


class Trajectory(Record):
    """A whole run: the system prompt, the tools, and every turn in order.

    Item ids are `system`, `tool:<name>` and `turn-000`, `turn-001` …; they do not depend on the call, so
    spans and manifests of different calls can be joined.
    """

    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    turns: tuple[Annotated[Turn, Field(discriminator="kind")], ...]
    carry: Carry = Carry()
    """What the packets sent so far fixed; of the last call, so a replay of earlier ones hands in its own."""

    @property
    def calls(self) -> int:
        """Model calls: one for each turn that the model wrote, and one more where the run waits for it."""
        return len(self._call_ends)

    def history(self, call: int) -> tuple[ContextItem, ...]:
        """The turns that call number `call` (from 0) reads: all before the turn that it produces."""
        ends = self._call_ends
        if not 0 <= call < len(ends):
            raise UsageError(
                f"This trajectory has calls 0 to {len(ends) - 1}, but call {call} was asked for."
            )
        return history_items(self.turns[: ends[call]])

    def request(
        self,
        call: int,
        *,
        context: RequestContext,
        window: int,
        max_output: int,
        overhead: int = 0,
        extra: Sequence[ContextItem] = (),
        state: TaskState | None = None,
        carry: Carry | None = None,
        bar: BarState | None = None,
        run_id: str = "",
        surface: str = "",
    ) -> AssemblyRequest:
        """The request of call number `call`; `extra` are further candidates (evidence, a status bar)."""
        return AssemblyRequest(
            context=context,
            candidates=(*system_items(self.system), *extra),
            history=self.history(call),
            tools=tool_items(self.tools),
            window=window,
            max_output=max_output,
            overhead=overhead,
            decision=Decision.CHOOSE_TOOL if self.tools else Decision.ANSWER,
            state=state if state is not None else TaskState(),
            carry=carry if carry is not None else self.carry,
            bar=bar,
            request_id=f"{run_id}/{call}" if run_id else str(call),
            run_id=run_id,
            step_id=str(call),
            surface=surface,
        )

    @property
    def _call_ends(self) -> tuple[int, ...]:
        """For every call, how many turns stand before what it produces."""
        ends = [index for index, turn in enumerate(self.turns) if not isinstance(turn, UserTurn)]
        waits = not self.turns or not isinstance(self.turns[-1], AssistantTurn)
        return (*ends, len(self.turns)) if waits else tuple(ends)


def system_items(text: str) -> tuple[ContextItem, ...]:
    """The system prompt as the one instruction; nothing for an empty text."""
    return (ContextItem(id=SYSTEM_ID, payload=Instruction(text=text)),) if text else ()


def tool_items(tools: Sequence[ToolSpec], authority: Authority = Authority.READ) -> tuple[ContextItem, ...]:
    """Tool contracts in their declared order, which the policy's `tool_order` may keep (`declared`)."""
    return tuple(
        ContextItem(id=f"tool:{tool.name}", payload=ToolContract(spec=tool, authority=authority), order=index)
        for index, tool in enumerate(tools)
    )


def history_items(turns: Sequence[Turn]) -> tuple[ContextItem, ...]:
    """Turns as a log: the n-th turn is `turn-00n` in every request."""
    return tuple(ContextItem(id=f"turn-{index:03d}", payload=turn) for index, turn in enumerate(turns))


def turns_from_messages(messages: Sequence[Message]) -> tuple[Turn, ...]:
    """Read a recorded conversation (without its system message) as turns.

    The last calls may be open. `UsageError` for an orphan: a result without its call, or a call that another
    message follows before all its results; such a log lost something, and guessing would hide it.
    """
    turns: list[Turn] = []
    index = 0
    while index < len(messages):
        message = messages[index]
        if message.role == "user":
            turns.append(UserTurn(text=message.content or "", name=message.name))
            index += 1
        elif message.role == "assistant" and message.tool_calls:
            end = index + 1
            while end < len(messages) and messages[end].role == "tool":
                end += 1
            if end < len(messages) and (problem := pairing_problem(messages[index:end])):
                raise UsageError(f"In the log up to message {end}, {problem}.")
            turns.append(_step(message, messages[index + 1 : end]))
            index = end
        elif message.role == "assistant":
            turns.append(AssistantTurn(text=message.content or "", reasoning=message.reasoning))
            index += 1
        else:
            what = "tool result without its call" if message.role == "tool" else f"{message.role} message"
            raise UsageError(
                f"Turns are user and assistant messages and complete tool steps; message {index} is a {what}."
            )
    return tuple(turns)


def _step(message: Message, results: Sequence[Message]) -> ToolStep:
    return ToolStep(
        calls=message.tool_calls,
        results=tuple(
            ToolResult(call_id=result.tool_call_id or "", content=result.content or "") for result in results
        ),
        text=message.content or "",
        reasoning=message.reasoning,
    )
