"""Running one admitted call: again only where that is safe, and believed only after its postcondition held."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from experiments.agent.protocols import Tools
from experiments.agent.tools import Failure, ToolOutcome
from serving.assembler import ToolCall, ToolContract

Postcondition: TypeAlias = Callable[[ToolCall, ToolOutcome], str | None]
"""What must hold after a successful run of a tool: None, or one sentence that says what does not."""

FAILED: Final = "failed"
"""The error class of a failure that its tool does not name."""

CANCEL_GRACE_S: Final = 5.0
"""How long a cancelled tool may take to stop before it is left behind (its thread ends with the program)."""


@dataclass(frozen=True, slots=True)
class Executed:
    """What came of a call that was run."""

    outcome: ToolOutcome
    attempts: int
    error_class: str | None
    """None: it succeeded, and what was to hold afterwards holds."""


@dataclass(frozen=True)
class RetryPolicy:
    """When a failed call is tried again: its tool is idempotent, and the failure of a kind that may pass."""

    transient: frozenset[Failure] = frozenset({Failure.ISOLATION})
    """Failures after which the same call may well succeed."""
    retries: int = 2
    wait_s: float = 0.2
    """Before the first retry; twice as long before each further one."""


@dataclass(frozen=True)
class Execution:
    """Runs admitted calls; whether a call is admitted is decided before (`refusals.py`, `approval.py`)."""

    tools: Tools
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    postconditions: Mapping[str, Postcondition] = field(default_factory=lambda: MappingProxyType({}))
    """By tool name."""

    def run(self, call: ToolCall, contract: ToolContract, cancel: threading.Event) -> Executed:
        """Run the call to its last attempt. Raises only what `tools` or a postcondition wrongly raises."""
        wait_s = self.retry.wait_s
        attempts = 0
        while True:
            attempts += 1
            outcome = self.tools.run(call.name, call.arguments, cancel=cancel)
            passing = contract.idempotent and outcome.failure in self.retry.transient
            if outcome.ok or not passing or attempts > self.retry.retries or cancel.wait(wait_s):
                return self._judged(call, outcome, attempts, cancel)
            wait_s *= 2

    def _judged(
        self, call: ToolCall, outcome: ToolOutcome, attempts: int, cancel: threading.Event
    ) -> Executed:
        if not outcome.ok:
            return Executed(
                outcome, attempts, Failure.CANCELLED.value if cancel.is_set() else failure_of(outcome)
            )
        check = self.postconditions.get(call.name)
        broken = None if check is None else check(call, outcome)
        if broken is None:
            return Executed(outcome, attempts, None)
        text = f"{call.name} ran, but what must hold afterwards does not: {broken}\n{outcome.text}"
        return Executed(ToolOutcome(text, ok=False), attempts, Failure.POSTCONDITION.value)


def failure_of(outcome: ToolOutcome) -> str:
    """The kind of a failure, as its tool names it."""
    return FAILED if outcome.failure is None else outcome.failure.value


class RunningTool:
    """One call in a thread of its own, so that several run side by side while the model still writes."""

    def __init__(self, execution: Execution, call: ToolCall, contract: ToolContract) -> None:
        self.call = call
        self.cancel = threading.Event()
        self.done: Future[Executed] = Future()

        def work() -> None:
            try:
                self.done.set_result(execution.run(call, contract, self.cancel))
            except BaseException as defect:  # noqa: BLE001 - handed to whoever waits, who raises it
                self.done.set_exception(defect)

        # A daemon: a tool that does not stop must not keep the program from ending.
        threading.Thread(target=work, name=f"tool-{call.name[:40]}", daemon=True).start()

    def wait(self, expired: Callable[[], bool] | None = None) -> Executed:
        """What came of it; once `expired`, the tool is asked to stop and has `CANCEL_GRACE_S` to do so."""
        while expired is not None:
            try:
                return self.done.result(timeout=0.05)
            except TimeoutError:
                if self.done.done() or not expired():
                    continue
                self.cancel.set()
                return self._stopped()
        return self.done.result()

    def _stopped(self) -> Executed:
        """The outcome of a cancelled tool, within its grace; what comes later is lost."""
        try:
            return self.done.result(timeout=CANCEL_GRACE_S)
        except TimeoutError:
            late = ToolOutcome(f"{self.call.name} was cancelled and did not stop.", ok=False)
            return Executed(late, 1, Failure.CANCELLED.value)
