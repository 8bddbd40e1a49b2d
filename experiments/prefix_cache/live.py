"""The study `prefix-cache-live`: the same ways of building a context while an agent really works on a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from experiments.agent.collected import CollectedTurn, collect
from experiments.agent.loop import CallFailedError, run_turn
from experiments.agent.progress import call_key
from experiments.agent.protocols import ModelCaller
from experiments.agent.rebuilding import RebuildingCaller
from experiments.agent.settings import TurnSettings
from experiments.agent.tokenin import TokenInCaller
from experiments.agent.tools import CALLS_ALONE, FINISH
from experiments.framework import (
    Analysis,
    Size,
    Study,
    TrialContext,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
)
from experiments.framework.arms import NULL_REBUILD, whole_number
from experiments.framework.measured import call_record, check_rebuilt, decode_of, require_refused
from experiments.framework.served_model import ServedModel, check_pool
from experiments.framework.trials import total
from experiments.prefix_cache.arms import APPEND_ONLY, ARMS, BASE
from experiments.prefix_cache.folder import question_tools
from experiments.prefix_cache.live_analysis import analyse
from experiments.prefix_cache.replay import Way
from experiments.prefix_cache.sabotage import faults_of, time_of
from experiments.workloads.file_questions import FileQuestion, file_question
from serving.assembler import (
    RequestContext,
    Trajectory,
)
from serving.call import Caller, DecodeOptions, MeasuredCall
from serving.client import Surface

LIVE: Final = (
    APPEND_ONLY,
    NULL_REBUILD,
    "clock-system-head",
    "clock-last-message",
    "clock-by-tool",
    "tools-shuffled",
    "tools-only-relevant",
    "sliding-window",
    "text-transcript",
    "token-in",
)
"""Arms of the replay whose effect on the work itself is in question, or that are worth a look as what costs most."""

SYSTEM: Final = (
    "You find things out in the files of a project. Call one tool at a time, such as "
    '{"name": "read_file", "arguments": {"path": "docs/planner.md"}}, until you have read every file that the '
    "question names. Then call finish with the values."
)


class PrefixCacheLiveStudy(Study[ServedModel]):
    """Lets the model work on questions over the frozen folder under each arm: one trial after another, each salted.

    Cost is the subject, so no two trials share a cache or a core, and every call is predicted and proven.
    """

    name = "prefix-cache-live"
    title = "Which ways of building the context keep the work, and what they cost then"
    question = (
        "An agent answers questions about a folder, and its context is built in ten ways. Which of them still solve "
        "their tasks – and of those, which make the server compute least?"
    )
    declared = frozenset(BASE)
    arms = tuple(arm for name in LIVE for arm in ARMS if arm.name == name)
    null_arm = NULL_REBUILD
    sizes = (
        Size(name="quick", tasks=2, seeds=1),
        # With fewer than nine tasks not even an arm that loses all of them is found beside seven others.
        Size(name="reference", tasks=12, seeds=1),
        Size(name="full", tasks=24, seeds=1),
    )

    def __init__(self, model: str, *, block_size: int = 32) -> None:
        """Args: `model` a catalogue name, hub id or folder whose template has tools; `block_size` in tokens."""
        self.base: dict[str, JsonValue] = {
            **BASE,
            "harness.max_iterations": 8,
            **CALLS_ALONE,
            "decode.max_tokens": 96,
            "engine.model": model,
            "engine.block_size": block_size,
            "engine.max_model_len": 4096,
            "engine.kv_cache_bytes": None,
        }

    def plan(self, size: Size) -> tuple[TrialSpec, ...]:
        """Every task is a question of its own: tasks are what statistics resample."""
        return size.each(f"file-question-{number}" for number in range(size.tasks))

    def run_trial(self, spec: TrialSpec, context: TrialContext[ServedModel]) -> TrialOutcome:
        """Work on one question under one arm; `InequalityError` where reuse or ids are not what was predicted."""
        question = file_question(int(spec.task.rpartition("-")[2]), spec.seed)
        asking = Asking(
            way=Way.of(context.factors),
            decode=decode_of(context.factors),
            max_iterations=whole_number(context.factors, "harness.max_iterations"),
            seed=spec.seed,
            salt=context.salt,
        )
        try:
            turn = work_on(question, asking, context.target)
        except CallFailedError as failed:
            return TrialOutcome(
                exchanges=(require_refused(failed.call.exchange),),
                succeeded=False,
                measures={"success": False},
                outcome=f"the server refused the request: {failed}",
            )
        return outcome_of(question, turn, context.target)

    def verify(self, records: Iterable[TrialRecord]) -> None:
        """The null arm reads the ids of append-only, as long as the model answered both alike."""
        check_rebuilt(records, base=APPEND_ONLY, null=NULL_REBUILD)

    def analyse(self, records: Sequence[TrialRecord]) -> Analysis:
        """Success first; cost only of arms that keep their tasks."""
        return analyse(self.arms, records)


@dataclass(frozen=True)
class Asking:
    """How a question is asked."""

    way: Way
    decode: DecodeOptions
    max_iterations: int
    seed: int
    salt: str


def work_on(question: FileQuestion, asking: Asking, target: ServedModel) -> CollectedTurn:
    """One turn of the agent loop over the frozen folder; raises as `run_turn` does."""
    way = asking.way
    tools = question_tools(question)
    settings = TurnSettings(
        context=RequestContext(tenant="lab", actor="study", now=time_of(0)),
        window=way.window or target.max_model_len,
        decode=asking.decode,
        salt=asking.salt,
        policy=way.policy,
        build_faults=lambda request: faults_of(
            way.faults, request, asking.seed, always_offered=frozenset({FINISH})
        ),
        max_iterations=asking.max_iterations,
        finish=FINISH,
        token_in=way.surface is Surface.TOKEN_IN,
        surface=f"{target.folder.name}/{way.surface.value}",
    )
    start = Trajectory(system=SYSTEM, tools=tools.specs, turns=())
    caller = caller_of(way, target)
    return collect(run_turn(caller, tools, start, question.text, settings))


def caller_of(way: Way, target: ServedModel) -> ModelCaller:
    """What makes the calls of one trial, with a prediction of its own."""
    if way.surface is Surface.TOKEN_IN:
        # Ids that were generated go back as they are; through messages they would be tokenised again.
        return TokenInCaller(
            target.client, target.folder, block_size=target.block_size, tokenizer=target.tokenizer
        )
    caller = Caller(target.client, target.folder, block_size=target.block_size, tokenizer=target.tokenizer)
    return RebuildingCaller(caller) if way.rebuild else caller


def outcome_of(question: FileQuestion, turn: CollectedTurn, target: ServedModel) -> TrialOutcome:
    """What a question that was worked on comes to; `LabError` where the pool was too small to predict it."""
    made = [call.call for call in turn.calls if isinstance(call.call, MeasuredCall)]
    check_pool(made, target)
    kept = tuple(call_record(call) for call in made)
    prompt, cached = total(call.prompt_tokens for call in kept), total(call.cached_tokens for call in kept)
    solved = question.solved(turn.answer)
    calls = Counter(call_key(tool.call) for tool in turn.tools_finished)
    return TrialOutcome(
        exchanges=tuple(call.exchange for call in made),
        calls=kept,
        manifests=tuple(call.packet.manifest for call in made),
        measures={
            "success": solved,
            "facts_found": question.found(turn.answer),
            "facts": len(question.facts),
            "iterations": len(kept),
            "tool_calls": calls.total(),
            "repeated_calls": calls.total() - len(calls),
            "gave_up": None if turn.gave_up is None else turn.gave_up.value,
            "ids_equal": turn.ids_equal,
            "block_size": target.block_size,
            "prompt_tokens": prompt,
            "cached_tokens": cached,
            "uncached_tokens": None if prompt is None or cached is None else prompt - cached,
            "output_tokens": total(call.output_tokens for call in kept),
            "ttft_s": total(call.ttft_s for call in kept),
            "latency_s": total(call.latency_s for call in kept),
        },
        succeeded=solved,
        outcome=turn.answer if turn.answer is not None else f"gave up: {turn.gave_up}",
    )
