"""The study `chat-template-reading`: right calls and results in the history, and one question about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from experiments.chat_template.analysis import analyse
from experiments.chat_template.arms import DECLARED, THINKING, accuracy_arms, base_factors
from experiments.chat_template.names import DROPPED, IDS_KEPT, SWAPPED, THINKING_OFF, TOOL_ROLE
from experiments.chat_template.proof import prove_run
from experiments.chat_template.reading import Reading, reading_task
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
from experiments.tool_calling.measures import refusal
from serving.assembler import ContextPolicy, HandOff
from serving.call import DecodeOptions
from serving.chat import TemplateRefusesError
from serving.errors import LabError
from serving.models import reasons

NULL_SEEDS: Final = 5
"""Tasks of each kind that the null arm repeats."""
GRADED: Final = ("success",)
"""There are no calls to grade: the answer alone is right or not."""
_NOT_HERE: Final = (IDS_KEPT, THINKING_OFF, DROPPED)
"""Nothing is generated before the question, so there are no ids to keep; and no arm here thinks."""


class ChatTemplateReadingStudy(Study[ServedModel]):
    """Asks for one of three results that the history holds; the answers are constrained to the three."""

    name = "chat-template-reading"
    title = "Which ways of sending results a model can still read"
    question = (
        "The calls are right and their results are in the history: does the model pick the result that is asked for, "
        "whoever is said to have spoken, in whatever form and order?"
    )
    declared = DECLARED
    null_arm = NULL_REBUILD
    sizes = (
        Size(name="quick", tasks=len(Reading), seeds=2),
        Size(name="reference", tasks=len(Reading), seeds=24),
        Size(name="full", tasks=len(Reading), seeds=80),
    )
    salt_scope = SaltScope.RUN
    concurrency = 8

    def __init__(self, model: str, *, block_size: int = 32) -> None:
        """Args: `model` a catalogue name, hub id or folder whose template has tools; `block_size` in tokens."""
        self.base = {
            **base_factors(model, block_size=block_size, max_tokens=24, window=4096),
            # A choice is constrained in the answer alone: a model that thinks first would have no answer yet.
            THINKING: False if reasons(model) else None,
        }
        self.arms = tuple(arm for arm in accuracy_arms(model) if arm.name not in _NOT_HERE)

    def plan(self, size: Size) -> tuple[TrialSpec, ...]:
        """A task of every kind before the next seed, so that a run that is cut short has all kinds."""
        return size.each(kind.value for kind in Reading)

    def applies(self, arm: Arm, spec: TrialSpec) -> bool:
        """Results are swapped where there are several; the null arm repeats the first tasks of each kind."""
        if arm.name == SWAPPED:
            return spec.task != Reading.CHAIN.value
        return arm.name != NULL_REBUILD or spec.seed < NULL_SEEDS

    def run_trial(self, spec: TrialSpec, context: TrialContext[ServedModel]) -> TrialOutcome:
        """Ask one question under one arm; `InequalityError` where the server reads other ids than rendered."""
        target, way = context.target, Way.of(context.factors)
        task = reading_task(Reading(spec.task), spec.seed, thinking=way.thinking is True)
        script = Scripted(task.story, way, spec.seed, target.max_model_len, context.salt)
        decode = DecodeOptions(
            max_tokens=whole_number(context.factors, "decode.max_tokens"), choices=task.choices
        )
        caller = WayCaller.of(way, target, seed=spec.seed, predictable=False)
        try:
            sent = foresee(script, target.folder.path, target.tokenizer, block_size=target.block_size)
            started = caller.start(
                script.request(task.story.calls - 1), ContextPolicy(), decode, salt=context.salt
            )
        except TemplateRefusesError as refused:
            return refusal(str(refused), graded=GRADED)
        if isinstance(started, HandOff):
            raise LabError(
                f"A question needs {started.needed} tokens of {started.budget}: serve a longer context."
            )
        call = started.finish()
        if call.exchange.error is not None:
            return refusal(call.exchange.error.sentence, require_refused(call.exchange), graded=GRADED)
        fixed, answer = prove_run(sent, target.block_size), call.exchange.text.strip()
        return TrialOutcome(
            exchanges=(call.exchange,),
            calls=(call_record(call, predictable=False),),
            manifests=(call.packet.manifest,),
            measures={
                "success": answer == task.right,
                "allowed": answer in task.choices,
                "chosen_place": task.choices.index(answer) if answer in task.choices else None,
                "choices": len(task.choices),
                "model_calls": 1,
                "ids_equal": int(call.ids_agree is True),
                "fixed_prompt_tokens": fixed.prompt_tokens,
                "fixed_lost_tokens": fixed.lost_tokens,
            },
            succeeded=answer == task.right,
            outcome=answer,
        )

    def verify(self, records: Iterable[TrialRecord]) -> None:
        """The null arm reads the ids of the first arm."""
        check_rebuilt(records, base=TOOL_ROLE, null=NULL_REBUILD)

    def analyse(self, records: Sequence[TrialRecord]) -> Analysis:
        """Right answers beside lost tokens, by arm; every sentence is computed."""
        return analyse(self.arms, records)
