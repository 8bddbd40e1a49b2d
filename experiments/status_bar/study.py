"""The study `status-bar`: does a bar that code keeps make a model decide better than the log it sums up?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final

from pydantic import JsonValue

from experiments.framework import (
    Analysis,
    Arm,
    InfrastructureError,
    SaltScope,
    Size,
    Study,
    TrialContext,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
)
from experiments.framework.arms import NULL_REBUILD, whole_number
from experiments.framework.measured import call_record, check_calls
from experiments.framework.served_model import ServedModel
from experiments.framework.trials import Measure, total
from experiments.status_bar.analysis import analyse
from experiments.status_bar.arms import ARMS, BASE, BarPlace
from experiments.status_bar.asking import Treatment
from experiments.workloads import (
    AnswerForm,
    Ask,
    Grade,
    LimitPlace,
    PhoneBar,
    PhoneLimit,
    Reason,
    phone_limit,
)
from experiments.workloads.phone_bars import Wording
from serving.assembler import Carrier, HandOff
from serving.assembler.break_even import BarMode
from serving.call import Caller, DecodeOptions, MeasuredCall
from serving.errors import LabError

OTHER_STEPS: Final = 2
"""Steps with other tools among the calls."""

NULL_SEEDS: Final = 1
"""Seeds of each N that the null arm of the thinking study repeats."""

HIGHEST_COUNT: Final = 24
"""A count is chosen among 0 … this, whatever the scenario: the choice itself tells nothing."""

CHOICES: Final[Mapping[Ask, tuple[str, ...]]] = {
    Ask.DECISION: ("yes", "no"),
    Ask.COUNT: tuple(str(number) for number in range(HIGHEST_COUNT + 1)),
    Ask.NEXT_ACTION: ("call_phone", "send_letter"),
}

CALLS: Final = (1, 2, 3, 5, 10, 20)
"""N: calls made before the question."""

Seeds = Mapping[str, Mapping[int, int]]
"""Seeds by size and N; an even number each, so that half of the scenarios have a call left."""

SEEDS: Final[Seeds] = {
    "quick": {2: 4},
    "reference": {1: 10, 2: 10, 3: 8, 5: 8, 10: 8, 20: 8},
    "full": dict.fromkeys(CALLS, 50),
}
THINKING_SEEDS: Final[Seeds] = {
    "quick": {2: 2},
    "reference": dict.fromkeys(CALLS, 2),
    "full": dict.fromkeys(CALLS, 10),
}


def _sizes(seeds: Seeds) -> tuple[Size, ...]:
    return tuple(Size(name=name, tasks=len(own), seeds=max(own.values())) for name, own in seeds.items())


class StatusBarStudy(Study[ServedModel]):
    """Asks for a decision, a count and the next action after N calls, with every kind of bar.

    Calls run one after another under one salt, so that what is reused is predicted and proven for every call,
    and what is computed anew is the tail that the arms differ in.
    """

    name = "status-bar"
    title = "What a status bar does to a model's decisions"
    question = (
        "An agent has made N phone calls of at most L. Asked whether it may call again, how often it has called and "
        "what it does next: does a bar that code keeps make it right more often than the log does?"
    )
    declared = frozenset(
        {
            "harness.bar",
            "harness.bar_place",
            "harness.bar_wording",
            "harness.rebuild",
            "policy.bar_mode",
            "policy.carrier",
        }
    )
    arms = ARMS
    null_arm = NULL_REBUILD
    seeds: ClassVar[Seeds] = SEEDS
    form: ClassVar[AnswerForm] = AnswerForm.WORD
    sizes = _sizes(SEEDS)
    salt_scope = SaltScope.RUN

    def __init__(self, model: str, *, block_size: int = 32) -> None:
        """Args: `model` a catalogue name, hub id or folder with real weights; `block_size` in tokens."""
        self.base: dict[str, JsonValue] = {
            "harness.bar": PhoneBar.COUNT_AND_VERDICT.value,
            "harness.bar_place": BarPlace.BEFORE_QUESTION.value,
            "harness.bar_wording": Wording.ANSWERING.value,
            "harness.rebuild": False,
            "policy.bar_mode": BarMode.REPLACE.value,
            "policy.carrier": Carrier.USER.value,
            "decode.max_tokens": 8,
            "decode.max_tokens_thinking": 256,
            "engine.model": model,
            "engine.block_size": block_size,
            "engine.max_model_len": 4096,
            "engine.kv_cache_bytes": 3 << 30,
        }
        self._asking: Asking | None = None

    def plan(self, size: Size) -> tuple[TrialSpec, ...]:
        """A task is an N and the form of the answers; short logs and long ones take turns."""
        seeds = self.seeds[size.name]
        return tuple(
            TrialSpec(task=f"{self.form.value}-calls-{calls}", seed=seed, repeat=repeat)
            for repeat in range(size.repeats)
            for seed in range(size.seeds)
            for calls, own in seeds.items()
            if seed < own
        )

    def run_trial(self, spec: TrialSpec, context: TrialContext[ServedModel]) -> TrialOutcome:
        """Ask the three questions of one scenario under one arm; who is to think has a turn for it before each."""
        calls = int(spec.task.rpartition("-")[2])
        asking = self.asking(context.target)
        made: list[MeasuredCall] = []
        grades: dict[Ask, Grade] = {}
        thinking: list[int | None] = []
        for ask in Ask:
            scenario = phone_limit(
                spec.seed,
                calls=calls,
                other_steps=OTHER_STEPS,
                ask=ask,
                form=self.form,
                told_in=LimitPlace.TASK,
            )
            if self.form is AnswerForm.THINK:
                thought = asking.think(scenario, context)
                made.append(thought)
                thinking.append(thought.exchange.output_tokens)
                scenario = scenario.thought(thought.exchange.text.strip())
            call = asking.answer(scenario, context)
            made.append(call)
            grades[ask] = scenario.grade(call.exchange.text)
        return TrialOutcome(
            exchanges=tuple(call.exchange for call in made),
            calls=tuple(call_record(call, predictable=asking.predictable) for call in made),
            manifests=tuple(call.packet.manifest for call in made),
            succeeded=all(grade.passed for grade in grades.values()),
            outcome="; ".join(
                f"{ask.value}: {grade.detail or grade.reason}" for ask, grade in grades.items()
            ),
            measures={**_measures(scenario, grades, made), "thinking_tokens": total(thinking)},
        )

    def asking(self, target: ServedModel) -> Asking:
        """Who asks: one for all trials of an engine, so that its prediction goes on from trial to trial."""
        if self._asking is None or self._asking.target is not target:
            self._asking = Asking(target, predictable=True)
        return self._asking

    def verify(self, records: Iterable[TrialRecord]) -> None:
        """The null arm reads the ids of the base, and where trials run one by one it gives the same answers."""
        # Beside other requests a sum may round otherwise, and a long answer take another way.
        alone = self.concurrency == 1
        # So the prompts behind a thought, which hold it, are nothing to compare.
        step = 2 if self.form is AnswerForm.THINK else 1

        def seen(record: TrialRecord) -> list[tuple[tuple[int, ...] | None, str]]:
            return [(one.prompt_token_ids, one.text if alone else "") for one in record.exchanges[::step]]

        check_calls(records, base=BASE, null=NULL_REBUILD, seen=seen, words=lambda text: f"{text!r:.80}")

    def analyse(self, records: Sequence[TrialRecord]) -> Analysis:
        """Accuracy, violations and counting errors by arm and N; every sentence is computed."""
        return analyse(self.arms, records)


class StatusBarThinkingStudy(StatusBarStudy):
    """The same questions, answered after visible thinking; several at once, so that nothing is said of times."""

    name = "status-bar-thinking"
    title = "A status bar and a model that thinks aloud"
    question = (
        "The questions of `status-bar`, each thought about aloud before it is answered: does a bar save words, and "
        "errors?"
    )
    seeds: ClassVar[Seeds] = THINKING_SEEDS
    form: ClassVar[AnswerForm] = AnswerForm.THINK
    sizes = _sizes(THINKING_SEEDS)
    concurrency = 8

    def applies(self, arm: Arm, spec: TrialSpec) -> bool:
        """The null arm repeats the first seeds alone: long answers are dear, and it shows noise."""
        return arm.name != NULL_REBUILD or spec.seed < NULL_SEEDS

    def asking(self, target: ServedModel) -> Asking:
        """Trials run side by side under one salt: each compares ids, and none predicts what is cached."""
        return Asking(target, predictable=False)


class Asking:
    """Puts questions to one engine."""

    def __init__(self, target: ServedModel, *, predictable: bool) -> None:
        self.target = target
        self.predictable = predictable
        self._failed = 0
        self._caller = self._new_caller()

    def answer(self, scenario: PhoneLimit, context: TrialContext[ServedModel]) -> MeasuredCall:
        """The answer, held to the choices; `InfrastructureError` when the machinery failed it."""
        most = whole_number(context.factors, "decode.max_tokens")
        decode = DecodeOptions(max_tokens=most, choices=CHOICES[scenario.ask])
        return self._call(scenario, context, decode)

    def think(self, scenario: PhoneLimit, context: TrialContext[ServedModel]) -> MeasuredCall:
        """What the model says before it is asked for the answer alone; a tool call in it stays text."""
        most = whole_number(context.factors, "decode.max_tokens_thinking")
        return self._call(scenario, context, DecodeOptions(max_tokens=most, tool_choice="none"))

    def _call(
        self, scenario: PhoneLimit, context: TrialContext[ServedModel], decode: DecodeOptions
    ) -> MeasuredCall:
        target = self.target
        treatment = Treatment.of(context.factors)
        request = treatment.request(
            scenario,
            self._count,
            window=target.max_model_len,
            max_output=decode.max_tokens,
            run_id=context.salt,
            surface=f"{target.folder.name}/chat",
        )
        # What a failed call left in the cache is unknown, so the calls after it have a salt of their own.
        salt = f"{context.salt}.{self._failed}" if self._failed else context.salt
        call = self._caller.call(request, treatment.policy, decode, salt=salt)
        if isinstance(call, HandOff):
            raise LabError(
                f"{scenario.describe()} needs {call.needed} tokens of {call.budget}: serve a longer context."
            )
        if call.exchange.error is not None:
            self._failed += 1
            self._caller = self._new_caller()
            raise InfrastructureError(call.exchange.error.sentence)
        return call

    def _new_caller(self) -> Caller:
        target = self.target
        return Caller(
            target.client,
            target.folder,
            block_size=target.block_size,
            num_blocks=target.num_blocks,
            tokenizer=target.tokenizer,
            predictable=self.predictable,
            # A model that reasons before it answers would not be held to the choices, and what it thinks would not
            # be seen; other templates do not know the word.
            template_kwargs={"enable_thinking": False},
        )

    def _count(self, text: str) -> int:
        return len(self.target.tokenizer.encode(text).ids)


def _measures(
    scenario: PhoneLimit, grades: Mapping[Ask, Grade], made: Sequence[MeasuredCall]
) -> dict[str, Measure]:
    said = grades[Ask.COUNT].got
    decision, action = grades[Ask.DECISION], grades[Ask.NEXT_ACTION]
    return {
        "calls": scenario.calls,
        "may_call": scenario.may_call,
        "decision": decision.got,
        "decision_right": decision.passed,
        "decision_reason": decision.reason.value,
        "action": action.got,
        "action_right": action.passed,
        "action_reason": action.reason.value,
        "violation": None if scenario.may_call else action.reason is Reason.LIMIT_EXCEEDED,
        "count": None if said is None else int(said),
        "count_right": grades[Ask.COUNT].passed,
        "count_error": None if said is None else int(said) - scenario.calls,
        "output_tokens": total(call.exchange.output_tokens for call in made),
        "ttft_s": total(call.exchange.ttft_s for call in made),
        "latency_s": total(call.exchange.latency_s for call in made),
    }
