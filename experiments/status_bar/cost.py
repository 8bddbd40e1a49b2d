"""The study `status-bar-cost`: taking the old bar out, or leaving it, in prompt tokens that a server really reused."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from pydantic import JsonValue

from experiments.framework import (
    Analysis,
    Arm,
    InfrastructureError,
    Size,
    Study,
    TrialContext,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
)
from experiments.framework.arms import NULL_REBUILD
from experiments.framework.measured import call_record, check_replayed
from experiments.framework.served_model import ServedModel
from experiments.framework.trials import total
from experiments.status_bar.cost_analysis import APPEND, NO_BAR, REPLACE, analyse
from experiments.workloads.words import PLACES
from serving.assembler import (
    AssemblyRequest,
    Carrier,
    ContextItem,
    ContextPolicy,
    HandOff,
    RequestContext,
    StatusBar,
    ToolCall,
    ToolResult,
    ToolSpec,
    ToolStep,
    Trajectory,
    UserTurn,
)
from serving.assembler.break_even import BarMode
from serving.call import Caller, DecodeOptions, MeasuredCall
from serving.errors import LabError

NOW: Final = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)

CALLS_PER_UPDATE: Final = {"quick": (2,), "full": (1, 2, 4)}
"""k: model calls that read a bar before the next one comes; each is a task."""
UPDATES: Final = {"quick": 6, "full": 12}
"""N at the end of a trial; every smaller N is its beginning."""

STEP_LINES: Final = {1: 12, 2: 6, 4: 3}
"""Lines of one tool result by k, so that a conversation grows by about as much from update to update."""
BAR_LINES: Final = 20
"""Lines of a bar beside its counter: long enough that the modes change places within a trial."""

ARMS: Final = (
    Arm(
        name=APPEND,
        title="Append",
        why="Every bar stays where it came: nothing is computed twice, and every call reads all of them.",
    ),
    Arm(
        name=REPLACE,
        title="Replace",
        why="An update takes the old bar out: prompts stay short, and what followed the old bar is computed again.",
        factors={"policy.bar_mode": BarMode.REPLACE.value},
    ),
    Arm(
        name=NULL_REBUILD,
        title="Rebuilt (null)",
        why="Append again, from a stored copy: the same bytes must cost the same.",
        factors={"harness.rebuild": True},
    ),
    Arm(
        name=NO_BAR,
        title="No bar",
        why="The conversation alone: what every other arm is measured from.",
        factors={"harness.bar": False},
    ),
)


class StatusBarCostStudy(Study[ServedModel]):
    """Replays one scripted tool loop under both modes; costs at every N follow from one trial."""

    name = "status-bar-cost"
    title = "A status bar: replace it, or append the next one?"
    question = (
        "Taking the old bar out breaks the cached prefix, leaving it makes every prompt longer. After how many updates "
        "does replacing become the cheaper way – and does the formula that is cited for it say so?"
    )
    declared = frozenset({"policy.bar_mode", "harness.rebuild", "harness.bar"})
    arms = ARMS
    null_arm = NULL_REBUILD
    sizes = (Size(name="quick", tasks=1, seeds=1), Size(name="full", tasks=3, seeds=2))

    def __init__(self, model: str, *, block_size: int = 32) -> None:
        """Args: `model` a catalogue name, hub id or folder; weights may be made up; `block_size` in tokens."""
        self.base: dict[str, JsonValue] = {
            "policy.bar_mode": BarMode.APPEND.value,
            "harness.bar": True,
            "harness.rebuild": False,
            "decode.max_tokens": 1,
            "engine.model": model,
            "engine.block_size": block_size,
            "engine.max_model_len": 16384,
            "engine.kv_cache_bytes": None,
        }

    def plan(self, size: Size) -> tuple[TrialSpec, ...]:
        """A task is k and the number of updates."""
        return size.each(
            f"every-{calls}-updates-{UPDATES[size.name]}" for calls in CALLS_PER_UPDATE[size.name]
        )

    def run_trial(self, spec: TrialSpec, context: TrialContext[ServedModel]) -> TrialOutcome:
        """Replay N × k calls under one arm; `InequalityError` where reuse is not what was predicted."""
        target = context.target
        every, updates = (int(part) for part in spec.task.split("-")[1::2])
        caller = Caller(
            target.client,
            target.folder,
            block_size=target.block_size,
            num_blocks=target.num_blocks,
            tokenizer=target.tokenizer,
        )
        story = scripted_loop(spec.seed, every=every, updates=updates)
        if context.factors["harness.rebuild"]:
            story = Trajectory.model_validate_json(story.model_dump_json())
        bars = BarMode(str(context.factors["policy.bar_mode"])) if context.factors["harness.bar"] else None
        made: list[MeasuredCall] = []
        for number in range(every * updates):
            request = story.request(
                number,
                context=RequestContext(tenant="lab", actor="study", now=NOW),
                window=target.max_model_len,
                max_output=1,
                run_id=context.salt,
                surface=f"{target.folder.name}/chat",
            )
            request = request.model_copy(update={"history": with_bars(request.history, every, bars)})
            made.append(_sent(caller, request, context.salt))
        calls = tuple(call_record(call) for call in made)
        return TrialOutcome(
            exchanges=tuple(call.exchange for call in made),
            calls=calls,
            manifests=tuple(call.packet.manifest for call in made),
            measures={
                "block_size": target.block_size,
                "prompt_tokens": total(call.prompt_tokens for call in calls),
                "cached_tokens": total(call.cached_tokens for call in calls),
                "ttft_s": total(call.ttft_s for call in calls),
            },
            outcome=f"{len(calls)} calls replayed",
        )

    def verify(self, records: Iterable[TrialRecord]) -> None:
        """The null arm reads the ids and reuses the tokens of append, call by call."""
        check_replayed(records, base=APPEND, null=NULL_REBUILD)

    def analyse(self, records: Sequence[TrialRecord]) -> Analysis:
        """Costs by N, the measured crossover, and both formulas beside it."""
        return analyse(self.arms, records)


def scripted_loop(seed: int, *, every: int, updates: int) -> Trajectory:
    """A tool loop of N × k calls whose results are about as long from one update to the next, whatever k is."""
    turns: list[UserTurn | ToolStep] = [UserTurn(text="Walk the round and tell what every room looks like.")]
    for number in range(every * updates - 1):
        place = PLACES[(seed * 7 + number) % len(PLACES)]
        call = ToolCall(id=f"step-{number:03d}", name=LOOK.name, arguments=json.dumps({"room": place}))
        lines = (
            f"shelf {shelf} of the {place}: in order, round {number}" for shelf in range(STEP_LINES[every])
        )
        turns.append(
            ToolStep(calls=(call,), results=(ToolResult(call_id=call.id, content="\n".join(lines)),))
        )
    return Trajectory(system="You look after a house.", tools=(LOOK,), turns=tuple(turns))


def with_bars(history: tuple[ContextItem, ...], every: int, mode: BarMode | None) -> tuple[ContextItem, ...]:
    """The log of a call with the bars that it reads: a bar comes with every `every`-th call and stands there."""
    if mode is None:
        return history
    due = [index for index in range(len(history)) if index % every == 0]
    shown = due if mode is BarMode.APPEND else due[-1:]
    log: list[ContextItem] = []
    for index, item in enumerate(history):
        log.append(item)
        if index in shown:
            number = index // every
            log.append(ContextItem(id=f"status-bar-{number:03d}", payload=StatusBar(text=_bar(number))))
    return tuple(log)


def _bar(number: int) -> str:
    rows = (f"- item {row}: {'done' if row < number else 'open'}" for row in range(BAR_LINES))
    return "\n".join((f"update {number:02d}", *rows))


def _sent(caller: Caller, request: AssemblyRequest, salt: str) -> MeasuredCall:
    policy = ContextPolicy(carrier=Carrier.TAIL_OF_LAST_TOOL_RESULT)
    call = caller.call(request, policy, DecodeOptions(max_tokens=1), salt=salt)
    if isinstance(call, HandOff):
        raise LabError(f"A call needs {call.needed} tokens of {call.budget}: serve a longer context.")
    if call.exchange.error is not None:
        raise InfrastructureError(call.exchange.error.sentence)
    return call


LOOK: Final = ToolSpec(
    name="look_into",
    description="Look into a room.",
    parameters={"type": "object", "properties": {"room": {"type": "string"}}, "required": ["room"]},
)
