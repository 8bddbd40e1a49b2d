"""The calls of one message: some run while the model still writes, the rest after it; results in call order.

Calls that only read are independent: they run side by side. One that may change something waits for all
before it and holds back all behind it, so what a step does is what its calls say in their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from experiments.agent.approval import Approver, call_sha256, unapproved
from experiments.agent.callform import CallForm, ReceivedCall, Said
from experiments.agent.callids import CallIds
from experiments.agent.events import ToolFinished, ToolStarted
from experiments.agent.execution import CANCEL_GRACE_S, Execution, RunningTool
from experiments.agent.progress import call_key
from experiments.agent.refusals import Catalogue, Refusal, RefusalReason
from experiments.agent.results import ResultWriter
from experiments.agent.streamed import StreamedCall
from experiments.agent.tools import ToolOutcome
from serving.assembler import Authority, ErrorFacts, TaskState, ToolCall, ToolContract, ToolResult
from serving.text import find_surrogate

StepEvents = Generator[ToolStarted | ToolFinished, None, "StepOutcome"]


@dataclass(frozen=True)
class StepRules:
    """What decides whether and how a call of this step runs."""

    catalogue: Catalogue
    state: TaskState
    execution: Execution
    results: ResultWriter
    approver: Approver | None
    seen: Mapping[str, int]
    """How often each call was made before this step, by `call_key`."""
    max_same_calls: int
    run_id: str
    number: int
    """Of the model call in the run: part of what an approval names."""
    now: Callable[[], datetime]
    expired: Callable[[], bool] | None
    """None: no deadline, so nothing has to be asked while waiting."""


@dataclass(frozen=True)
class StepOutcome:
    """What a step came to."""

    results: tuple[ToolResult, ...]
    """One for every call, in call order."""
    seen: Mapping[str, int]
    tools_run: int
    errors: tuple[ErrorFacts, ...]
    """Of every call that failed or was refused."""
    to_load: tuple[str, ...]
    """Deferred tools that were called for."""
    repeated: bool
    """Whether a call came more often than the loop allows."""


class _Verdict(NamedTuple):
    position: int
    received: ReceivedCall
    refusal: Refusal | None
    made: int


class _Ended(NamedTuple):
    result: ToolResult
    event: ToolFinished
    error: ErrorFacts | None


@dataclass
class StepTools:
    """Runs the tools of one step; `cancel` it when the message or the step does not end well."""

    rules: StepRules
    ids: CallIds
    """Of the stream: gives the ids that the finished message will have."""
    _early: dict[int, RunningTool] = field(default_factory=dict)
    _running: list[RunningTool] = field(default_factory=list)

    def offer(self, streamed: StreamedCall) -> ToolStarted | None:
        """Start a call whose arguments are complete while the message goes on; None: it waits for the end.

        Only what reads and may be run again starts: should the stream then fail, nothing has happened. A
        consequential or non-idempotent tool, and every call behind one, waits for the end of the message.
        """
        rules = self.rules
        contract = rules.catalogue.callable.get(streamed.name)
        if streamed.position != len(self._early) or contract is None or not reads_only(contract):
            return None
        text = f"{streamed.received_id}{streamed.name}{streamed.arguments}"
        if find_surrogate(text) is not None or rules.results.redactor.redact(text).removed:
            return None
        # An id is spent only on a call that starts, so that the order of ids is that of the message.
        unnamed = ToolCall(id="unnamed", name=streamed.name, arguments=streamed.arguments)
        key = call_key(unnamed)
        if key in rules.seen or any(key == call_key(tool.call) for tool in self._early.values()):
            return None
        state = _with_run(rules.state, len(self._early))
        if rules.catalogue.refusal(unnamed, state) is not None:
            return None
        call = unnamed.model_copy(update={"id": self.ids.give(streamed.received_id)})
        self._early[streamed.position] = self._start(call, contract)
        return ToolStarted(call, CallForm.NATIVE, streamed.received_id, early=True)

    def run(self, said: Said) -> StepEvents:
        """Run what has not started yet, and give every result; raises what an `Approver` raises."""
        rules = self.rules
        seen = Counter(rules.seen)
        ended: list[_Ended] = []
        tools_run = 0
        for batch in _batches(said.calls, rules.catalogue):
            verdicts: list[_Verdict] = []
            started: dict[int, RunningTool] = {}
            for position, received in batch:
                verdict = self._verdict(position, received, seen, tools_run)
                verdicts.append(verdict)
                if verdict.refusal is None:
                    tools_run += 1
                    adopted = self._adopted(position, received.call)
                    if adopted is None:
                        yield ToolStarted(received.call, said.form, received.received_id)
                    contract = rules.catalogue.callable[received.call.name]
                    started[position] = adopted or self._start(received.call, contract)
            for verdict in verdicts:
                ended.append(self._ended(verdict, started.get(verdict.position)))
                yield ended[-1].event
        refused = [(one.event.call.name, one.event.refusal) for one in ended]
        return StepOutcome(
            results=tuple(one.result for one in ended),
            seen=seen,
            tools_run=tools_run,
            errors=tuple(one.error for one in ended if one.error is not None),
            to_load=tuple(
                dict.fromkeys(name for name, reason in refused if reason is RefusalReason.NOT_LOADED)
            ),
            repeated=any(reason is RefusalReason.REPEATED_CALL for _, reason in refused),
        )

    def cancel(self) -> None:
        """Ask every tool that runs to stop, and wait until all have, or their grace is over."""
        for tool in self._running:
            tool.cancel.set()
        wait([tool.done for tool in self._running], timeout=CANCEL_GRACE_S)

    def _ended(self, verdict: _Verdict, running: RunningTool | None) -> _Ended:
        """The result of a call: of its refusal, or of its run, which is waited for."""
        rules, call = self.rules, verdict.received.call
        if verdict.refusal is not None or running is None:
            refusal = verdict.refusal or Refusal(RefusalReason.CANCELLED, "It never began.")
            result = rules.results.refused(call, refusal, rules.now())
            error = ErrorFacts(
                call_id=call.id, error_class=refusal.reason.value, next_actions=refusal.next_actions
            )
            outcome = ToolOutcome(result.content, ok=False)
            return _Ended(result, ToolFinished(call, outcome, refusal=refusal.reason), error)
        executed = running.wait(rules.expired)
        place = (rules.number, verdict.position)
        result = rules.results.ran(call, executed, made=verdict.made, place=place, now=rules.now())
        shown = replace(executed.outcome, text=result.content, ok=not result.failed)
        failed = executed.error_class
        return _Ended(
            result,
            ToolFinished(call, shown, attempts=executed.attempts),
            None if failed is None else ErrorFacts(call_id=call.id, error_class=failed),
        )

    def _verdict(self, position: int, received: ReceivedCall, seen: Counter[str], tools_run: int) -> _Verdict:
        rules, call = self.rules, received.call
        key = call_key(call)
        seen[key] += 1
        if seen[key] > rules.max_same_calls:
            sentence = (
                f"{call.name} was called with these arguments {seen[key] - 1} times already, and {seen[key]} "
                "times is once too often: use the results that came."
            )
            return _Verdict(position, received, Refusal(RefusalReason.REPEATED_CALL, sentence), seen[key])
        refusal = rules.catalogue.refusal(call, _with_run(rules.state, tools_run)) or self._too_late()
        if refusal is None:
            name = call_sha256(rules.run_id, rules.number, position, call)
            refusal = unapproved(call, rules.catalogue.callable[call.name], name, rules.approver)
            refusal = refusal or self._too_late()  # who decides may take long
        elif refusal.reason is RefusalReason.NOT_LOADED:
            seen[key] -= 1  # the same call, made again, is what it asks for
        return _Verdict(position, received, refusal, seen[key])

    def _too_late(self) -> Refusal | None:
        if self.rules.expired is None or not self.rules.expired():
            return None
        return Refusal(RefusalReason.CANCELLED, "The time of the task is over.")

    def _adopted(self, position: int, call: ToolCall) -> RunningTool | None:
        """The tool that started early for this very call; one that started for another is cancelled."""
        early = self._early.get(position)
        if early is None or early.call == call:
            return early
        early.cancel.set()
        return None

    def _start(self, call: ToolCall, contract: ToolContract) -> RunningTool:
        running = RunningTool(self.rules.execution, call, contract)
        self._running.append(running)
        return running


def reads_only(contract: ToolContract) -> bool:
    """Whether calls of the tool are independent of all others: it may be run again, and names no effect."""
    return contract.authority is Authority.READ and contract.idempotent and not contract.effect


def _batches(calls: Sequence[ReceivedCall], catalogue: Catalogue) -> Iterator[list[tuple[int, ReceivedCall]]]:
    """Stretches of calls that may run side by side, in call order."""
    together: list[tuple[int, ReceivedCall]] = []
    for position, received in enumerate(calls):
        contract = catalogue.callable.get(received.call.name)
        if contract is None or reads_only(contract):
            together.append((position, received))
            continue
        if together:
            yield together
        yield [(position, received)]
        together = []
    if together:
        yield together


def _with_run(state: TaskState, tools_run: int) -> TaskState:
    if state.limits.tool_attempts is None or not tools_run:
        return state
    used = state.limits.tool_attempts_used + tools_run
    return state.model_copy(update={"limits": state.limits.model_copy(update={"tool_attempts_used": used})})
