"""What a turn does between its model calls: the next request, the rules of the next step, the new progress."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

from experiments.agent.callform import Said, read_answer
from experiments.agent.callids import CallIds
from experiments.agent.cleaning import without_secrets
from experiments.agent.events import CallStarted, FinishedCall, ModelEvent, ToolStarted
from experiments.agent.execution import Execution
from experiments.agent.progress import Progress
from experiments.agent.protocols import Started, Tools
from experiments.agent.refusals import Catalogue
from experiments.agent.results import ResultWriter
from experiments.agent.settings import TurnSettings
from experiments.agent.step import StepOutcome, StepRules, StepTools
from experiments.agent.streamed import StreamedCalls
from serving.assembler import (
    AssemblyRequest,
    ContextItem,
    Fault,
    ToolContract,
    ToolStep,
    Trajectory,
)


@dataclass(frozen=True)
class TurnWork:
    """The parts of one turn that do not change; every method is a step from old values to new ones."""

    tools: Tools
    settings: TurnSettings

    def expired(self, progress: Progress) -> bool:
        """Whether the turn's time is over."""
        return progress.expired(self.settings.deadline_s, self.settings.now())

    def request(self, progress: Progress, trajectory: Trajectory) -> AssemblyRequest:
        """The next model call's request: the log as it is, the head and the offered tools as they were."""
        settings, now = self.settings, self.settings.now()
        around = settings.surroundings()
        request = trajectory.request(
            trajectory.calls - 1,
            context=settings.context.model_copy(update={"now": now}),
            window=settings.window,
            max_output=settings.decode.max_tokens,
            extra=settings.deferred.catalogue,
            state=progress.state(settings.state, settings.deadline_s),
            bar=progress.bar(around.system, around.todo, now, around.call_limits),
            run_id=settings.run_id,
            surface=settings.surface,
        )
        contracts = self._contracts(trajectory)
        return request.model_copy(
            update={
                "history": progress.log(trajectory),
                "tools": tuple(
                    ContextItem(id=f"tool:{name}", payload=contract, order=index)
                    for index, (name, contract) in enumerate(contracts.items())
                ),
            }
        )

    def faults(self, request: AssemblyRequest) -> tuple[Fault, ...]:
        """The sabotage of this call."""
        build = self.settings.build_faults
        return (*self.settings.faults, *(() if build is None else build(request)))

    def with_events(self, progress: Progress, trajectory: Trajectory) -> Progress:
        """With what waited in the harness's queue, behind the last item of the log and there for good."""
        queue = self.settings.events
        if queue is None:
            return progress
        drain = queue.drain(f"{self.settings.run_id or self.settings.salt}/{trajectory.calls - 1}")
        queue.commit(drain)
        return progress.with_placed(last_id(trajectory), *drain.items)

    def step(self, progress: Progress, trajectory: Trajectory) -> StepTools:
        """What will run the calls of the next message."""
        settings = self.settings
        offered = self._contracts(trajectory)
        loaded = {
            item.payload.spec.name: item.payload
            for item in progress.log(trajectory)
            if isinstance(item.payload, ToolContract)
        }
        deferred = {tool.contract.spec.name for tool in settings.deferred.tools}
        # A turn that failed goes on under a new salt: no reference and no approval is that of the first try.
        attempt = f"{settings.run_id}/{settings.salt}"
        rules = StepRules(
            catalogue=Catalogue({**offered, **loaded}, frozenset(deferred - loaded.keys())),
            state=progress.state(settings.state, settings.deadline_s),
            execution=Execution(self.tools, settings.retry, settings.postconditions),
            results=ResultWriter(settings.redactor, settings.artifacts, settings.longest_result, attempt),
            approver=settings.approver,
            seen=progress.seen,
            max_same_calls=settings.max_same_calls,
            run_id=attempt,
            number=trajectory.calls - 1,
            now=settings.now,
            expired=None if settings.deadline_s is None else lambda: self.expired(progress),
        )
        return StepTools(rules, CallIds(call_ids(trajectory)))

    def stream(
        self,
        iteration: int,
        started: Started,
        step: StepTools,
        progress: Progress,
        *,
        request: AssemblyRequest,
        fault_names: tuple[str, ...],
    ) -> Generator[CallStarted | ModelEvent | ToolStarted, None, bool]:
        """Pass on what arrives and start what is complete; False when the time ran out, the call cancelled."""
        calls = StreamedCalls(self.settings.token_in)
        packet, rendered, prediction = started.packet, started.rendered, started.prediction
        try:
            yield CallStarted(iteration, packet, rendered, prediction, request, fault_names)
            for event in started:
                yield ModelEvent(event)
                for streamed in calls.feed(event):
                    if (tool := step.offer(streamed)) is not None:
                        yield tool
                if self.expired(progress):
                    started.cancel()
                    return False
        except BaseException:
            # Closed by whoever listens, or interrupted while waiting: nobody will read the rest.
            started.cancel()
            raise
        return True

    def said(
        self, call: FinishedCall, progress: Progress, trajectory: Trajectory
    ) -> tuple[Said, tuple[str, ...]]:
        """What the history keeps of the answer, and the kinds of secrets that were cut from it."""
        settings = self.settings
        names = {
            item.payload.spec.name
            for item in progress.log(trajectory)
            if isinstance(item.payload, ToolContract)
        }
        names |= {tool.name for tool in trajectory.tools}
        names |= {tool.contract.spec.name for tool in settings.deferred.tools}
        said = read_answer(
            call.exchange, tool_names=names, used_ids=call_ids(trajectory), accept=settings.accept
        )
        return without_secrets(said, settings.redactor)

    def after(self, progress: Progress, trajectory: Trajectory, outcome: StepOutcome) -> Progress:
        """The progress behind a finished step, which is the last turn of `trajectory`."""
        here = last_id(trajectory)
        progress = replace(
            progress.at(here, self.settings.now()),
            seen=outcome.seen,
            tools_run=progress.tools_run + outcome.tools_run,
            errors=(*progress.errors, *outcome.errors),
        )
        for name in outcome.to_load:
            contract = self.settings.deferred.load(name, progress.log(trajectory))
            progress = progress.with_placed(here, *contract)
        return progress

    def _contracts(self, trajectory: Trajectory) -> dict[str, ToolContract]:
        """Of the offered tools, in their order; one that nothing runs is what `tools` say of it."""
        known = {contract.spec.name: contract for contract in self.tools.contracts}
        return {
            spec.name: known.get(spec.name, ToolContract(spec=spec)).model_copy(update={"spec": spec})
            for spec in trajectory.tools
        }


def last_id(trajectory: Trajectory) -> str:
    """The item id of the last turn."""
    return f"turn-{len(trajectory.turns) - 1:03d}"


def call_ids(trajectory: Trajectory) -> list[str]:
    """The ids of all calls so far."""
    return [call.id for turn in trajectory.turns if isinstance(turn, ToolStep) for call in turn.calls]
