"""The studies `chat-template` and `chat-template-cost`: the same questions, the conversation sent in other ways."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final

from experiments.agent.collected import CollectedTurn
from experiments.agent.drift import drifts
from experiments.agent.loop import CallFailedError
from experiments.chat_template.analysis import analyse
from experiments.chat_template.arms import DECLARED, accuracy_arms, base_factors
from experiments.chat_template.conversation import right_turn
from experiments.chat_template.cost_analysis import analyse_cost
from experiments.chat_template.names import DRIFT, SWAPPED, TOOL_ROLE
from experiments.chat_template.proof import RunProof, Sent, prove_run
from experiments.chat_template.replaying import Scripted, foresee
from experiments.chat_template.ways import Way, WayCaller
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
from experiments.framework.trials import Measure
from experiments.tool_calling.asking import Asking, ask
from experiments.tool_calling.measures import measures, refusal, times
from experiments.tool_calling.names import EXCLUDED, NO_ISOLATION
from experiments.tool_calling.study import interpreter_here
from experiments.workloads.tool_prompts import PromptClass, ToolPrompt, tool_prompt
from serving.call import MeasuredCall
from serving.chat import TemplateRefusesError
from serving.models import reasons

CLASSES: Final = (PromptClass.SINGLE, PromptClass.PARALLEL, PromptClass.CHAINED)
"""Where results come back and a right answer reads them; a failing tool is E1's subject."""
NULL_SEEDS: Final = 5
"""Prompts of each class that the null arm repeats."""
ANSWER_TOKENS: Final = 128
THINKING_TOKENS: Final = 1024
MAX_CALLS: Final = 6
"""Model calls of one turn."""


class ChatTemplateStudy(Study[ServedModel]):
    """Asks the tool prompts under every way of sending the conversation, several at once, and grades by code."""

    name = "chat-template"
    title = "What breaks the cache, and what breaks the model"
    question = (
        "The same conversation can be sent in many ways: results as the tool or as the user, structured or as text, in "
        "order or swapped, with a late system message. Which of them cost cached tokens, which cost right answers, and "
        "which both?"
    )
    declared = DECLARED
    null_arm = NULL_REBUILD
    sizes: tuple[Size, ...] = (
        Size(name="quick", tasks=len(CLASSES), seeds=2),
        Size(name="reference", tasks=len(CLASSES), seeds=20),
        Size(name="full", tasks=len(CLASSES), seeds=80),
    )
    salt_scope = SaltScope.RUN
    concurrency = 8
    predictable: ClassVar[bool] = False
    """Trials share the head of tools and run side by side: ids are compared, and cached tokens are not."""

    def __init__(self, model: str, *, block_size: int = 32) -> None:
        """Args: `model` a catalogue name, hub id or folder whose template has tools; `block_size` in tokens."""
        tokens = ANSWER_TOKENS + (THINKING_TOKENS if reasons(model) else 0)
        self.base = base_factors(
            model, block_size=block_size, max_tokens=tokens, window=8192 if reasons(model) else 4096
        )
        self.arms = accuracy_arms(model)

    def plan(self, size: Size) -> tuple[TrialSpec, ...]:
        """A prompt of every class before the next seed, so that a run that is cut short has all classes."""
        return size.each(kind.value for kind in CLASSES)

    def applies(self, arm: Arm, spec: TrialSpec) -> bool:
        """Results are swapped where there are several; the null arm repeats the first prompts of each class."""
        if arm.name == SWAPPED:
            return spec.task == PromptClass.PARALLEL.value
        return arm.name != NULL_REBUILD or spec.seed < NULL_SEEDS

    def run_trial(self, spec: TrialSpec, context: TrialContext[ServedModel]) -> TrialOutcome:
        """Ask one prompt under one arm; `InequalityError` where the server reads other ids than rendered."""
        prompt = tool_prompt(PromptClass(spec.task), spec.seed)
        interpreter = interpreter_here()
        if prompt.needs_isolation and not interpreter:
            return TrialOutcome(succeeded=False, measures={EXCLUDED: NO_ISOLATION}, outcome=NO_ISOLATION)
        target, way = context.target, Way.of(context.factors)
        caller = WayCaller.of(way, target, seed=spec.seed, predictable=self.predictable)
        asking = Asking(
            window=target.max_model_len,
            max_tokens=whole_number(context.factors, "decode.max_tokens"),
            max_iterations=MAX_CALLS,
            salt=context.salt,
            surface=f"{target.folder.name}/{way.surface}",
            interpreter=interpreter,
        )
        try:
            collected = ask(prompt, caller, asking)
        except CallFailedError as failed:
            return refusal(str(failed), require_refused(failed.call.exchange))
        except TemplateRefusesError as failed:
            return refusal(str(failed))
        script = Scripted(
            right_turn(prompt, thinking=way.thinking is True, interpreter=interpreter),
            way,
            spec.seed,
            target.max_model_len,
        )
        return self.outcome(prompt, collected, target, _fixed(script, target))

    def outcome(
        self, prompt: ToolPrompt, collected: CollectedTurn, target: ServedModel, fixed: RunProof | None
    ) -> TrialOutcome:
        """The record of a turn that came to an end; `fixed`: what this way costs the prompt's right turn."""
        calls = [call.call for call in collected.calls if isinstance(call.call, MeasuredCall)]
        graded = measures(
            prompt,
            collected,
            lambda text: len(target.tokenizer.encode(text).ids),
            reasons=target.folder.reasoning_parser is not None,
        )
        return TrialOutcome(
            exchanges=tuple(call.exchange for call in calls),
            calls=tuple(call_record(call, predictable=self.predictable) for call in calls),
            manifests=tuple(call.packet.manifest for call in calls),
            measures={
                **graded,
                **_cost(prove_run([_sent(call) for call in calls], target.block_size)),
                **{f"{DRIFT}{cause.value}": count for cause, count in drifts(calls).items()},
                "fixed_prompt_tokens": None if fixed is None else fixed.prompt_tokens,
                "fixed_lost_tokens": None if fixed is None else fixed.lost_tokens,
            },
            succeeded=graded["success"] is True,
            outcome=collected.answer if collected.answer is not None else f"gave up: {collected.gave_up}",
        )

    def verify(self, records: Iterable[TrialRecord]) -> None:
        """The null arm reads the ids of the first arm, as long as the model gave both the same answers."""
        check_rebuilt(records, base=TOOL_ROLE, null=NULL_REBUILD)

    def analyse(self, records: Sequence[TrialRecord]) -> Analysis:
        """Right answers beside lost tokens, by arm; every sentence is computed."""
        return analyse(self.arms, records)


class ChatTemplateCostStudy(ChatTemplateStudy):
    """The same prompts and arms, each trial with a salt of its own and alone on the server."""

    name = "chat-template-cost"
    title = "What a way of sending costs a real turn"
    question = (
        "With the answers that the model really gives: is every cached token as predicted in every arm, how many are "
        "lost, and how long does a later call wait?"
    )
    sizes: tuple[Size, ...] = (
        Size(name="quick", tasks=len(CLASSES), seeds=1),
        Size(name="reference", tasks=len(CLASSES), seeds=3),
        Size(name="full", tasks=len(CLASSES), seeds=10),
    )
    salt_scope = SaltScope.ATTEMPT
    concurrency = 1
    predictable: ClassVar[bool] = True

    def outcome(
        self, prompt: ToolPrompt, collected: CollectedTurn, target: ServedModel, fixed: RunProof | None
    ) -> TrialOutcome:
        """With the times, which mean something here."""
        made = super().outcome(prompt, collected, target, fixed)
        return made.model_copy(update={"measures": {**made.measures, **times(collected)}})

    def analyse(self, records: Sequence[TrialRecord]) -> Analysis:
        """Lost tokens and waits of real turns; every sentence is computed."""
        return analyse_cost(self.arms, records)


def _fixed(script: Scripted, target: ServedModel) -> RunProof | None:
    """What the way costs the prompt's right turn; None where the template refuses that turn."""
    try:
        sent = foresee(script, target.folder.path, target.tokenizer, block_size=target.block_size)
    except TemplateRefusesError:
        return None
    return prove_run(sent, target.block_size)


def _sent(call: MeasuredCall) -> Sent:
    """What a call did in its own turn: the prediction knows no other one, so it is exact whoever shares the salt."""
    return Sent(call.rendered.token_ids, call.exchange.output_token_ids or (), call.prediction.cached_tokens)


def _cost(proof: RunProof) -> Mapping[str, Measure]:
    return {
        "later_calls": max(proof.calls - 1, 0),
        "kept_all": proof.kept_all,
        "kept_prompt": proof.kept_prompt,
        "alone_cached_tokens": proof.cached_tokens,
        "twin_tokens": proof.twin_tokens,
        "lost_tokens": proof.lost_tokens,
    }
