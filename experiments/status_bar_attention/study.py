"""The study `status-bar-attention`: what a status bar gets of a model's attention beside the records it sums up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from experiments.attention.asking import assembled, call_of, chosen_rows, on, packed, tokens_of
from experiments.framework import (
    Analysis,
    Arm,
    Size,
    Study,
    TrialContext,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
)
from experiments.framework.arms import NULL_REBUILD, whole_number
from experiments.framework.local_model import LocalModel, recorded
from experiments.framework.measured import check_null
from experiments.framework.trials import Measure
from experiments.status_bar.arms import BASE, FILLER, NO_BAR, WRONG
from experiments.status_bar_attention.analysis import analyse
from experiments.workloads import PhoneBar, PhoneLimit, phone_bar, phone_limit
from experiments.workloads.phone_limit import PHONE
from serving.assembler import ToolStep
from serving.attention import Capture, Reading, SegmentKind, Segments, read_packet

CALLS: Final = {"quick": (2,), "medium": (3,), "full": (1, 2, 3, 5, 10)}
"""Calls made before the question, by size; each is a task, and even seeds have no call left."""

OTHER_STEPS: Final = {"quick": 2, "medium": 2, "full": 6}

BAR: Final = "bar"
RECORDS: Final = "records"
OTHERS: Final = "others"
RULES: Final = "rules"
QUESTION: Final = "question"


def _bar(name: str, bar: PhoneBar, title: str, why: str) -> Arm:
    factors: dict[str, JsonValue] = {} if name == BASE else {"harness.bar": bar.value}
    return Arm(name=name, title=title, why=why, factors=factors)


ARMS: Final = (
    _bar(
        BASE,
        PhoneBar.COUNT_AND_VERDICT,
        "Count and verdict",
        "The bar says how many calls were made and if one is left.",
    ),
    Arm(
        name=NULL_REBUILD,
        title="Rebuilt (null)",
        why="The same context from a stored copy: the same ids must give the same attention.",
        factors={"harness.rebuild": True},
    ),
    _bar(NO_BAR, PhoneBar.NONE, "No bar", "The calls stand in the log alone and have to be counted."),
    _bar(
        "count",
        PhoneBar.COUNT,
        "Count only",
        "The bar says how many calls were made; the limit is in the rules.",
    ),
    _bar("prose", PhoneBar.PROSE, "Prose", "The same as a sentence."),
    _bar(
        FILLER,
        PhoneBar.FILLER,
        "Filler",
        "As many tokens at the same place that say nothing of use: what the place alone gets.",
    ),
    _bar(WRONG, PhoneBar.WRONG_BY_ONE, "Wrong by one", "A bar whose verdict is wrong."),
)


class StatusBarAttentionStudy(Study[LocalModel]):
    """Asks whether one more call is allowed, and keeps what deciding and generated rows looked at."""

    name = "status-bar-attention"
    title = "A status bar beside the records it sums up"
    question = (
        "When a model decides whether it may call again: how much attention does a token of the status bar get, "
        "beside a token of the raw call records – and is it the bar's words, or only its place?"
    )
    declared = frozenset({"harness.bar", "harness.rebuild"})
    arms = ARMS
    null_arm = NULL_REBUILD
    sizes = (
        Size(name="quick", tasks=1, seeds=2),
        Size(name="medium", tasks=1, seeds=20),
        Size(name="full", tasks=5, seeds=24),
    )

    def __init__(self, model: str) -> None:
        """Args: `model` a catalogue name, hub id or folder; its weights should be real."""
        self.base: dict[str, JsonValue] = {
            "harness.bar": PhoneBar.COUNT_AND_VERDICT.value,
            "harness.rebuild": False,
            "decode.max_tokens": 24,
            "decode.beginning": "Answer:",
            "engine.model": model,
        }

    def plan(self, size: Size) -> tuple[TrialSpec, ...]:
        """A task is a number of calls among other steps; half of its seeds have a call left."""
        return tuple(
            TrialSpec(task=f"calls-{calls}-steps-{OTHER_STEPS[size.name]}", seed=seed, repeat=repeat)
            for repeat in range(size.repeats)
            for calls in CALLS[size.name]
            for seed in range(size.seeds)
        )

    def run_trial(self, spec: TrialSpec, context: TrialContext[LocalModel]) -> TrialOutcome:
        """Ask for the decision twice – constrained, and in free words – and capture the rows of both.

        The answer is begun for the model, as the question asks for it: the deciding row is the same row everywhere,
        and what is chosen between are the words that may follow it.
        """
        model = context.target
        _, calls, _, steps = spec.task.split("-")
        scenario = phone_limit(spec.seed, calls=int(calls), other_steps=int(steps))
        if context.factors["harness.rebuild"]:
            scenario = PhoneLimit.model_validate_json(scenario.model_dump_json())
        most = whole_number(context.factors, "decode.max_tokens")
        bar = phone_bar(scenario, PhoneBar(str(context.factors["harness.bar"])), model.count)
        request = scenario.request(
            window=model.folder.max_position_embeddings,
            max_output=most,
            extra=() if bar is None else (bar,),
            run_id=context.salt,
            surface=f"{model.folder.name}/in-process",
        )
        packet = assembled(model, request)
        prompt = read_packet(packet, model.renderer)
        beginning = str(context.factors["decode.beginning"])
        begun = (*prompt.token_ids, *model.renderer.tokenizer.encode(beginning).ids)
        read = model.read(begun)
        decision = read.choose([f" {choice}" for choice in scenario.choices])
        exchange = recorded(packet, begun, lambda: read.answer(most), model.text)
        grade = scenario.grade(beginning + decision.text)
        written = (*begun[len(prompt.token_ids) :], *(exchange.output_token_ids or ()))
        whole = read_packet(packet, model.renderer, written)
        decides = len(begun) - 1
        capture = model.capture(
            whole.token_ids, whole.segments, chosen_rows(range(decides, whole.segments.tokens - 1)), read
        )
        return TrialOutcome(
            exchanges=(exchange,),
            calls=(call_of(exchange),),
            manifests=(packet.manifest,),
            succeeded=grade.passed,
            outcome=f"{grade.reason.value}: chose {decision.text.strip()!r}, expected {scenario.expected}; said "
            f"{exchange.text.strip()!r}",
            measures={
                "correct": grade.passed,
                "reason": grade.reason.value,
                "said_right": scenario.grade(beginning + exchange.text).passed,
                "margin": margin(decision.log_probabilities, f" {scenario.expected}"),
                "decision sink": float(capture.sink[:, :, 0].mean()),
                "generated sink": None
                if len(capture.row_starts) < 2
                else float(capture.sink[:, :, 1:].mean()),
                **looks(whole, scenario, capture),
            },
        )

    def verify(self, records: Iterable[TrialRecord]) -> None:
        """The null arm reads the same ids and looks the same."""

        def seen(record: TrialRecord) -> dict[str, object]:
            (exchange,) = record.exchanges
            return {
                "prompt ids": exchange.prompt_token_ids,
                "output ids": exchange.output_token_ids,
                "mass on the bar": record.measures["decision bar"],
            }

        check_null(records, base=BASE, null=NULL_REBUILD, seen=seen)

    def analyse(self, records: Sequence[TrialRecord]) -> Analysis:
        """Mass per token by part, decisions, and the differences between arms."""
        return analyse(self.arms, records)


def margin(log_probabilities: Mapping[str, float], expected: str) -> float:
    """How much likelier (in nats) the right choice is than the likeliest wrong one."""
    wrong = [value for text, value in log_probabilities.items() if text != expected]
    return log_probabilities[expected] - max(wrong)


def looks(context: Reading, scenario: PhoneLimit, capture: Capture) -> dict[str, Measure]:
    """Mass and tokens of every group: at the deciding row, and over the rows that wrote the rest."""
    measures: dict[str, Measure] = {}
    for name, places in _groups(context.segments, scenario).items():
        if not places:
            continue
        decision = on(capture, places, 0)
        measures[f"tokens {name}"] = tokens_of(context.segments, places)
        measures[f"decision {name}"] = float(decision.mean())
        if name in (BAR, RECORDS):
            measures[f"by_layer {name}"] = packed(decision.mean(1))
        if len(capture.row_starts) > 1:
            measures[f"generated {name}"] = float(on(capture, places, slice(1, None)).mean())
    return measures


def _groups(segments: Segments, scenario: PhoneLimit) -> dict[str, list[int]]:
    """The segments of the bar, of the phone's steps, of other steps, of the rules and of the question."""
    steps: dict[str, str] = {}
    for place, turn in enumerate(scenario.trajectory.turns):
        if isinstance(turn, ToolStep):
            steps[f"turn-{place:03d}"] = RECORDS if turn.calls[0].name == PHONE else OTHERS
    last = f"turn-{len(scenario.trajectory.turns) - 1:03d}"
    groups: dict[str, list[int]] = {name: [] for name in (BAR, RECORDS, OTHERS, RULES, QUESTION)}
    for place, segment in enumerate(segments.segments):
        if segment.kind is SegmentKind.STATUS_BAR:
            groups[BAR].append(place)
        elif segment.kind is SegmentKind.SYSTEM:
            groups[RULES].append(place)
        elif segment.item_id == last:
            groups[QUESTION].append(place)
        elif segment.item_id in steps:
            groups[steps[segment.item_id]].append(place)
    return groups
