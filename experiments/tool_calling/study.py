"""The study `tool-calling`: does a model make the calls that a prompt needs, and stop where it should?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

from pydantic import JsonValue

from experiments.agent.collected import CollectedTurn
from experiments.agent.loop import CallFailedError
from experiments.agent.rebuilding import RebuildingCaller
from experiments.agent.tools import Limits, NoIsolationError
from experiments.agent.tools.sandbox import isolation
from experiments.framework import (
    Analysis,
    Arm,
    SaltScope,
    Size,
    Study,
    TrialContext,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
)
from experiments.framework.arms import NULL_REBUILD, whole_number
from experiments.framework.measured import call_record, check_rebuilt, require_refused
from experiments.framework.served_model import ServedModel
from experiments.tool_calling.analysis import analyse
from experiments.tool_calling.asking import Asking, FirstChoice, SteeredCaller, ask
from experiments.tool_calling.measures import measures, refusal
from experiments.tool_calling.names import AUTO, EXCLUDED, NO_ISOLATION, REQUIRED
from experiments.workloads.tool_prompts import PromptClass, ToolPrompt, tool_prompt
from serving.call import Caller, MeasuredCall
from serving.models import reasons

ARMS: Final = (
    Arm(
        name=AUTO,
        title="The model chooses",
        why="Whether a tool is called, and which, is left to the model. This is how an agent usually runs.",
    ),
    Arm(
        name=NULL_REBUILD,
        title="Rebuilt (null)",
        why="The same bytes built anew from a stored copy, with the tools in another order before they are laid "
        "out. Any difference to the first arm is the noise of the measurement.",
        factors={"harness.rebuild": True},
    ),
    Arm(
        name=REQUIRED,
        title="First call required",
        why="The server makes the first message a tool call in its own JSON form, and leaves later ones to the "
        "model, which could never stop otherwise. Shows what is the form's fault and what the model's.",
        factors={"decode.tool_choice": FirstChoice.REQUIRED.value},
    ),
)

NULL_SEEDS: Final = 8
"""Prompts of each class that the null arm repeats: it shows noise, and needs no more."""


ANSWER_TOKENS: Final = 128
"""Of one message: three calls and a sentence."""
THINKING_TOKENS: Final = 1024
"""More, for a model that reasons before it answers."""


class ToolCallingStudy(Study[ServedModel]):
    """Asks scripted prompts of five classes, several at once, and grades the calls by code."""

    name = "tool-calling"
    title = "Which tools a model calls, how it writes the calls, and whether it stops"
    question = (
        "Given six tools and a question, does the model make exactly the calls that the answer needs, in a form that "
        "a harness can read, and stop when it knows enough?"
    )
    declared = frozenset({"decode.tool_choice", "harness.rebuild"})
    arms = ARMS
    null_arm = NULL_REBUILD
    sizes: tuple[Size, ...] = (
        Size(name="quick", tasks=len(PromptClass), seeds=4),
        Size(name="reference", tasks=len(PromptClass), seeds=40),
        Size(name="full", tasks=len(PromptClass), seeds=120),
    )
    salt_scope = SaltScope.RUN
    concurrency = 8
    predictable: ClassVar[bool] = False
    """Trials share a salt and run side by side, so ids are compared and cached tokens are not predicted."""

    def __init__(self, model: str, *, block_size: int = 32) -> None:
        """Args: `model` a catalogue name, hub id or folder whose template has tools; `block_size` in tokens."""
        self.base: dict[str, JsonValue] = {
            "decode.tool_choice": FirstChoice.AUTO.value,
            "decode.max_tokens": ANSWER_TOKENS + (THINKING_TOKENS if reasons(model) else 0),
            "harness.rebuild": False,
            "harness.max_iterations": 6,
            "engine.model": model,
            "engine.block_size": block_size,
            "engine.max_model_len": 4096,
            "engine.kv_cache_bytes": None,
        }

    def plan(self, size: Size) -> tuple[TrialSpec, ...]:
        """A prompt of every class before the next seed, so that a run that is cut short has all classes."""
        return size.each(kind.value for kind in PromptClass)

    def applies(self, arm: Arm, spec: TrialSpec) -> bool:
        """A call is never required where none is right; the null arm repeats the first prompts of each class."""
        if arm.name == REQUIRED:
            return spec.task != PromptClass.NO_TOOL.value
        return arm.name != NULL_REBUILD or spec.seed < NULL_SEEDS

    def run_trial(self, spec: TrialSpec, context: TrialContext[ServedModel]) -> TrialOutcome:
        """Ask one prompt under one arm; `InequalityError` where the server reads other ids than rendered."""
        prompt = tool_prompt(PromptClass(spec.task), spec.seed)
        interpreter = interpreter_here()
        if prompt.needs_isolation and not interpreter:
            return TrialOutcome(succeeded=False, measures={EXCLUDED: NO_ISOLATION}, outcome=NO_ISOLATION)
        target, factors = context.target, context.factors
        caller = Caller(
            target.client,
            target.folder,
            block_size=target.block_size,
            tokenizer=target.tokenizer,
            predictable=self.predictable,
        )
        steered = SteeredCaller(
            RebuildingCaller(caller) if factors["harness.rebuild"] is True else caller,
            FirstChoice(str(factors["decode.tool_choice"])),
        )
        asking = Asking(
            window=target.max_model_len,
            max_tokens=whole_number(factors, "decode.max_tokens"),
            max_iterations=whole_number(factors, "harness.max_iterations"),
            salt=context.salt,
            surface=f"{target.folder.name}/chat",
            interpreter=interpreter,
        )
        try:
            collected = ask(prompt, steered, asking)
        except CallFailedError as failed:
            return refusal(str(failed), require_refused(failed.call.exchange))
        return self.outcome(prompt, collected, target)

    def outcome(self, prompt: ToolPrompt, collected: CollectedTurn, target: ServedModel) -> TrialOutcome:
        """The trial's record of a turn that came to an end."""
        calls = [call.call for call in collected.calls if isinstance(call.call, MeasuredCall)]
        found = measures(
            prompt,
            collected,
            lambda text: len(target.tokenizer.encode(text).ids),
            reasons=target.folder.reasoning_parser is not None,
        )
        return TrialOutcome(
            exchanges=tuple(call.exchange for call in calls),
            calls=tuple(call_record(call, predictable=self.predictable) for call in calls),
            manifests=tuple(call.packet.manifest for call in calls),
            measures=found,
            succeeded=found["success"] is True,
            outcome=collected.answer if collected.answer is not None else f"gave up: {collected.gave_up}",
        )

    def verify(self, records: Iterable[TrialRecord]) -> None:
        """The null arm reads the ids of the first arm, as long as the model gave both the same answers."""
        check_rebuilt(records, base=AUTO, null=NULL_REBUILD)

    def analyse(self, records: Sequence[TrialRecord]) -> Analysis:
        """Shares right by class, form and tool choice; every sentence is computed."""
        return analyse(self.arms, records)


def interpreter_here() -> bool:
    """Whether this machine can isolate a program, without which `run_python` is not offered."""
    try:
        isolation(Limits())
    except NoIsolationError:
        return False
    return True
