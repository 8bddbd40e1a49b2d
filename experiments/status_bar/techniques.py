"""The study `status-bar-techniques`: which of a bar's five techniques helps an agent to get its work done?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from pydantic import JsonValue

from experiments.agent.loop import CallFailedError
from experiments.agent.tools import CALLS_ALONE
from experiments.framework import (
    Analysis,
    SaltScope,
    Size,
    Study,
    TrialContext,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
)
from experiments.framework.arms import NULL_REBUILD, whole_number
from experiments.framework.measured import call_record, check_rebuilt, decode_of, require_refused
from experiments.framework.served_model import ServedModel
from experiments.status_bar.techniques_analysis import analyse
from experiments.status_bar.techniques_asking import Asking, Worked, work_on
from experiments.status_bar.techniques_design import ARMS, FACTORS, NONE, techniques_of
from experiments.status_bar.techniques_measures import measures
from experiments.status_bar.techniques_tasks import VARIANTS, TaskKind, bar_task
from serving.call import Caller, MeasuredCall


class StatusBarTechniquesStudy(Study[ServedModel]):
    """Gives scripted tasks to the agent loop under every run of the half fraction, and grades the final state."""

    name = "status-bar-techniques"
    title = "Which technique of a status bar helps an agent"
    question = (
        "System state, timestamps, call counters, a TODO list, errors: each is shown or not, and named in the system "
        "prompt or not. Which of them makes an agent solve more tasks, forget less, keep its limits or need fewer "
        "messages?"
    )
    declared = frozenset({*FACTORS.values(), "harness.rebuild"})
    arms = ARMS
    null_arm = NULL_REBUILD
    sizes = (
        Size(name="quick", tasks=2, seeds=1),
        # Eight tasks are the fewest with which an exact test of five effects can come below 0.05.
        Size(name="reference", tasks=2 * len(TaskKind), seeds=1),
        Size(name="full", tasks=len(TaskKind) * VARIANTS, seeds=3),
    )
    salt_scope = SaltScope.RUN
    concurrency = 8
    predictable: ClassVar[bool] = False
    """Trials share a salt and run side by side, so ids are compared and cached tokens are not predicted."""

    def __init__(self, model: str, *, block_size: int = 32) -> None:
        """Args: `model` a catalogue name, hub id or folder whose template has tools; `block_size` in tokens."""
        self.base: dict[str, JsonValue] = {
            **dict.fromkeys(FACTORS.values(), False),
            "harness.rebuild": False,
            "harness.max_iterations": 10,
            **CALLS_ALONE,
            "decode.max_tokens": 128,
            "engine.model": model,
            "engine.block_size": block_size,
            "engine.max_model_len": 4096,
            "engine.kv_cache_bytes": None,
        }

    def plan(self, size: Size) -> tuple[TrialSpec, ...]:
        """A task is a kind and a variant; a variant of every kind comes before the next variant."""
        tasks = [f"{kind.value}-{variant}" for variant in range(VARIANTS) for kind in TaskKind]
        return size.each(tasks[: size.tasks])

    def run_trial(self, spec: TrialSpec, context: TrialContext[ServedModel]) -> TrialOutcome:
        """Work on one task under one arm; `InequalityError` where the server reads other ids than rendered."""
        kind, _, variant = spec.task.rpartition("-")
        target, factors = context.target, context.factors
        caller = Caller(
            target.client,
            target.folder,
            block_size=target.block_size,
            tokenizer=target.tokenizer,
            predictable=self.predictable,
        )
        asking = Asking(
            window=target.max_model_len,
            decode=decode_of(factors),
            max_iterations=whole_number(factors, "harness.max_iterations"),
            salt=context.salt,
            surface=f"{target.folder.name}/chat",
            rebuild=factors["harness.rebuild"] is True,
        )
        task = bar_task(TaskKind(kind), int(variant), spec.seed)
        try:
            worked = work_on(task, techniques_of(factors), caller, asking)
        except CallFailedError as failed:
            return TrialOutcome(
                exchanges=(require_refused(failed.call.exchange),),
                succeeded=False,
                measures={"success": False},
                outcome=f"the server refused the request: {failed}",
            )
        return self._outcome(worked)

    def verify(self, records: Iterable[TrialRecord]) -> None:
        """The null arm reads the ids of the arm without techniques, as long as the model answered both alike."""
        check_rebuilt(records, base=NONE, null=NULL_REBUILD)

    def analyse(self, records: Sequence[TrialRecord]) -> Analysis:
        """Main effects and interactions over the fraction; every sentence is computed."""
        return analyse(self.arms, records)

    def _outcome(self, worked: Worked) -> TrialOutcome:
        turn = worked.turn
        calls = [call.call for call in turn.calls if isinstance(call.call, MeasuredCall)]
        return TrialOutcome(
            exchanges=tuple(call.exchange for call in calls),
            calls=tuple(call_record(call, predictable=self.predictable) for call in calls),
            manifests=tuple(call.packet.manifest for call in calls),
            measures=measures(worked),
            succeeded=worked.grade.succeeded,
            outcome=turn.answer if turn.answer is not None else f"gave up: {turn.gave_up}",
        )
