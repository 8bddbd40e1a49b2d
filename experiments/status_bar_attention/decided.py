"""The study `status-bar-decided`: the very prompts of `status-bar`, and where the deciding token looked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from experiments.attention.asking import call_of, chosen_rows
from experiments.framework import Analysis, Size, Study, TrialContext, TrialOutcome, TrialRecord, TrialSpec
from experiments.framework.arms import NULL_REBUILD
from experiments.framework.local_model import LocalModel, recorded
from experiments.framework.measured import check_null
from experiments.status_bar.arms import ARMS as ASKED_ARMS
from experiments.status_bar.arms import BASE, FILLER, NO_BAR, WRONG
from experiments.status_bar.asking import Treatment
from experiments.status_bar.study import CHOICES, OTHER_STEPS, StatusBarStudy
from experiments.status_bar_attention.analysis import analyse
from experiments.status_bar_attention.study import looks, margin
from experiments.workloads import AnswerForm, Ask, LimitPlace, phone_limit
from serving.assembler import HandOff, assemble
from serving.attention import read_packet
from serving.errors import LabError

ARMS: Final = tuple(
    arm
    for arm in ASKED_ARMS
    if arm.name in (BASE, NULL_REBUILD, NO_BAR, "count", "short", "prose", FILLER, WRONG, "after-question")
)

SEEDS: Final[Mapping[str, Mapping[int, int]]] = {
    "quick": {2: 2},
    "reference": {3: 8, 10: 8},
    "full": dict.fromkeys((1, 2, 3, 5, 10, 20), 20),
}
"""Seeds by size and N, the first of those that `status-bar` asks."""


class StatusBarDecidedStudy(Study[LocalModel]):
    """Chooses between yes and no as the server does, and keeps what the row that chooses looked at.

    Task, seed and arm name the same prompt, token for token, as in `status-bar`, so the two runs can be joined.
    """

    name = "status-bar-decided"
    title = "What a model looks at while it takes a bar's word"
    question = (
        "In the prompts of `status-bar`: how much attention does a token of the bar get at the token that decides, "
        "beside a token of the records that it sums up – with a right bar, a wrong one and none?"
    )
    declared = frozenset({"harness.bar", "harness.bar_place", "harness.bar_wording", "harness.rebuild"})
    arms = ARMS
    null_arm = NULL_REBUILD
    sizes = tuple(
        Size(name=name, tasks=len(seeds), seeds=max(seeds.values())) for name, seeds in SEEDS.items()
    )

    def __init__(self, model: str) -> None:
        """Args: `model` a catalogue name, hub id or folder; its weights should be real."""
        asked = StatusBarStudy(model).base
        self.base: dict[str, JsonValue] = {
            path: value for path, value in asked.items() if path.partition(".")[0] in ("harness", "policy")
        } | {"engine.model": model}

    def plan(self, size: Size) -> tuple[TrialSpec, ...]:
        """The tasks of `status-bar`, by the same names."""
        seeds = SEEDS[size.name]
        return tuple(
            TrialSpec(task=f"{AnswerForm.WORD.value}-calls-{calls}", seed=seed, repeat=repeat)
            for repeat in range(size.repeats)
            for seed in range(size.seeds)
            for calls, own in seeds.items()
            if seed < own
        )

    def run_trial(self, spec: TrialSpec, context: TrialContext[LocalModel]) -> TrialOutcome:
        """Read one prompt, choose, and capture the last row of all heads."""
        model = context.target
        scenario = phone_limit(
            spec.seed,
            calls=int(spec.task.rpartition("-")[2]),
            other_steps=OTHER_STEPS,
            ask=Ask.DECISION,
            form=AnswerForm.WORD,
            told_in=LimitPlace.TASK,
        )
        treatment = Treatment.of(context.factors)
        request = treatment.request(
            scenario,
            model.count,
            window=model.folder.max_position_embeddings,
            max_output=1,
            run_id=context.salt,
            surface=f"{model.folder.name}/in-process",
        )
        packet = assemble(request, treatment.policy, model.renderer)
        if isinstance(packet, HandOff):
            raise LabError(f"{scenario.describe()} needs {packet.needed} tokens of {packet.budget}.")
        prompt = read_packet(packet, model.renderer)
        read = model.read(prompt.token_ids)
        decision = read.choose(CHOICES[Ask.DECISION])
        exchange = recorded(packet, prompt.token_ids, lambda: read.answer(1), model.text)
        capture = model.capture(
            prompt.token_ids, prompt.segments, chosen_rows((len(prompt.token_ids) - 1,)), read
        )
        grade = scenario.grade(decision.text)
        return TrialOutcome(
            exchanges=(exchange,),
            calls=(call_of(exchange),),
            manifests=(packet.manifest,),
            succeeded=grade.passed,
            outcome=f"{grade.reason.value}: chose {decision.text!r}, expected {scenario.expected}",
            measures={
                "correct": grade.passed,
                "reason": grade.reason.value,
                "margin": margin(decision.log_probabilities, scenario.expected),
                "decision sink": float(capture.sink[:, :, 0].mean()),
                **looks(prompt, scenario, capture),
            },
        )

    def verify(self, records: Iterable[TrialRecord]) -> None:
        """The null arm reads the same ids and looks the same."""

        def seen(record: TrialRecord) -> dict[str, object]:
            return {
                "prompt ids": record.exchanges[0].prompt_token_ids,
                "mass on the bar": record.measures["decision bar"],
            }

        check_null(records, base=BASE, null=NULL_REBUILD, seen=seen)

    def analyse(self, records: Sequence[TrialRecord]) -> Analysis:
        """Mass per token by part, decisions, and the differences between arms."""
        return analyse(self.arms, records)
