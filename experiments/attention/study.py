"""The study `attention`: where a model looks, with depth, with position, and when it counts instead of finding."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from pydantic import JsonValue

from experiments.attention.analysis import analyse
from experiments.attention.arms import ARMS, Question
from experiments.attention.asking import assembled, call_of, chosen_rows, on, packed, tokens_of, with_output
from experiments.attention.figures import map_figure
from experiments.framework import Analysis, Size, Study, TrialContext, TrialOutcome, TrialRecord, TrialSpec
from experiments.framework.arms import NULL_REBUILD, whole_number
from experiments.framework.local_model import LocalModel, recorded
from experiments.framework.measured import check_null
from experiments.framework.trials import Measure
from experiments.workloads import (
    CageAsk,
    CageCount,
    NeedleScenario,
    PhoneLimit,
    cage_count,
    needle,
    phone_limit,
)
from serving.assembler import Packet, PacketSpan, item_of, part_id
from serving.attention import Capture, CaptureOptions, Reading, Statistic, read_packet
from serving.attention.page import viewer_options
from serving.attention.views import layer_profile, maps_apart, triangles
from serving.errors import LabError


class Scale(NamedTuple):
    """How long the contexts of a size are."""

    tokens: int
    """Of the needle's text."""
    cats: int
    steps: int
    """Steps of the agent's trace beside its calls."""
    calls: int


SCALES: Final = {
    "short": Scale(220, 16, 2, 2),
    "middle": Scale(700, 48, 4, 3),
    "long": Scale(1500, 100, 8, 4),
}
"""By the task's name: a run of one size never mixes them."""

ASKED: Final = "asked"
"""The part of a tool result from which the answer follows."""

LEAST_CHOICES: Final = 10
"""Numbers that a count is chosen from, at least."""

MAP_BINS: Final = 24
"""Bins of a head's map in the trace; the mean over heads has twice as many."""


class AttentionStudy(Study[LocalModel]):
    """Asks needles, cages and an agent's trace, and keeps what the deciding rows looked at."""

    name = "attention"
    title = "Where a model looks, and whether that is where it finds"
    question = (
        "At the token that decides an answer: how much attention do the needle, the cages that count and the tools "
        "get, by layer and by position – and does it go with a right answer?"
    )
    declared = frozenset({"harness.question", "harness.depth", "harness.rebuild"})
    arms = ARMS
    null_arm = NULL_REBUILD
    sizes = (
        Size(name="quick", tasks=1, seeds=1),
        Size(name="medium", tasks=1, seeds=20),
        Size(name="full", tasks=1, seeds=20),
    )

    def __init__(self, model: str) -> None:
        """Args: `model` a catalogue name, hub id or folder; its weights should be real."""
        self.base: dict[str, JsonValue] = {
            "harness.question": Question.NEEDLE.value,
            "harness.depth": 0.5,
            "harness.rebuild": False,
            "harness.shuffles": 8,
            "decode.max_tokens": 16,
            "decode.beginning": "Answer:",
            "engine.model": model,
        }

    def plan(self, size: Size) -> tuple[TrialSpec, ...]:
        """One task, named after the length of its contexts; a seed is another story."""
        task = {"quick": "short", "medium": "middle", "full": "long"}[size.name]
        return size.each((task,))

    def run_trial(self, spec: TrialSpec, context: TrialContext[LocalModel]) -> TrialOutcome:
        """Ask the arm's question once and capture the rows that decide its answer."""
        asked = Question(str(context.factors["harness.question"]))
        scale = SCALES[spec.task]
        match asked:
            case Question.NEEDLE:
                return self._needle(spec, scale, context)
            case Question.TRACE:
                return self._trace(spec, scale, context)
            case _:
                return self._cages(asked, spec, scale, context)

    def _needle(self, spec: TrialSpec, scale: Scale, context: TrialContext[LocalModel]) -> TrialOutcome:
        model, depth = context.target, context.factors["harness.depth"]
        if not isinstance(depth, int | float):
            raise LabError(f"harness.depth is a number, got {depth!r}.")
        scenario = needle(spec.seed, depth=depth, tokens=scale.tokens, count=model.count)
        if context.factors["harness.rebuild"]:
            scenario = NeedleScenario.model_validate_json(scenario.model_dump_json())
        packet = _packet(model, scenario, context)
        spans = packet.model_copy(update={"spans": scenario.spans(packet)})
        prompt = read_packet(spans, model.renderer)
        wanted = [prompt.segments.index(part_id("turn-000", "needle-0"))]
        return self._asked(packet, prompt, wanted, scenario, context)

    def _cages(
        self, asked: Question, spec: TrialSpec, scale: Scale, context: TrialContext[LocalModel]
    ) -> TrialOutcome:
        ask = CageAsk.LOOK_UP if asked is Question.LOOK_UP else CageAsk.COUNT
        scenario = cage_count(spec.seed, cats=scale.cats, ask=ask)
        if asked is Question.COUNTED_BY_CODE:
            scenario = scenario.model_copy(update={"items": (*scenario.items, scenario.summary())})
        packet = _packet(context.target, scenario, context)
        spans = packet.model_copy(update={"spans": tuple(_cage_spans(packet, scenario))})
        prompt = read_packet(spans, context.target.renderer)
        by_code = asked is Question.COUNTED_BY_CODE
        wanted = [
            place
            for place, segment in enumerate(prompt.segments.segments)
            if (segment.id == scenario.summary().id if by_code else segment.id.endswith(f"#{ASKED}"))
        ]
        return self._asked(packet, prompt, wanted, scenario, context)

    def _asked(
        self,
        packet: Packet,
        prompt: Reading,
        wanted: Sequence[int],
        scenario: NeedleScenario | CageCount,
        context: TrialContext[LocalModel],
    ) -> TrialOutcome:
        """Begin the answer for the model, let it go on, and look at the row that decides how."""
        model = context.target
        beginning = tuple(model.renderer.tokenizer.encode(str(context.factors["decode.beginning"])).ids)
        begun = (*prompt.token_ids, *beginning)
        read = model.read(begun)
        choices = _choices(scenario)
        said = read.choose([f" {choice}" for choice in choices]).text if choices else None
        exchange = recorded(packet, begun, lambda: read.answer(_most(context)), model.text)
        right = said.strip() == scenario.expected if said else _holds(exchange.text, scenario.expected)
        segments = with_output(prompt.segments, begun[len(prompt.token_ids) :], model.renderer)
        capture = model.capture(begun, segments, chosen_rows([len(begun) - 1], Statistic.ENTROPY), read)
        mass = on(capture, wanted)
        beside_sink = float(mass.mean()) / (1 - float(capture.sink.mean()))
        even = tokens_of(segments, wanted) / (len(begun) - 1)
        answer = "" if said is None else f"chose {said.strip()!r}, "
        return TrialOutcome(
            exchanges=(exchange,),
            calls=(call_of(exchange),),
            manifests=(packet.manifest,),
            succeeded=right,
            outcome=f"{answer}said {exchange.text.strip()!r}; {scenario.expected} is right",
            measures={
                "correct": right,
                "mass_share": float(mass.mean()),
                "times_even": beside_sink / even,
                "best_head_share": float(mass.max()),
                "sink_share": float(capture.sink.mean()),
                "by_layer_mass": packed(mass.mean(1)),
                **_profile(capture),
            },
        )

    def _trace(self, spec: TrialSpec, scale: Scale, context: TrialContext[LocalModel]) -> TrialOutcome:
        """An agent's calls and a free answer to its question, every row captured."""
        model = context.target
        scenario = phone_limit(spec.seed, calls=scale.calls, other_steps=scale.steps)
        packet = _packet(model, scenario, context)
        prompt = read_packet(packet, model.renderer).token_ids
        exchange = recorded(packet, prompt, lambda: model.read(prompt).answer(2 * _most(context)), model.text)
        whole = read_packet(packet, model.renderer, exchange.output_token_ids or ())
        shuffles = context.factors["harness.shuffles"]
        options = CaptureOptions(
            heatmap_bins=MAP_BINS,
            shuffles=shuffles if isinstance(shuffles, int) else 0,
            shuffle_seed=spec.seed,
        )
        capture = model.capture(
            whole.token_ids, whole.segments, viewer_options(whole.segments.tokens, options)
        )
        measures: dict[str, Measure] = {}
        for one in triangles(capture):
            measures[f"mass {one.name}"] = one.mass
            measures[f"expected {one.name}"] = one.expected
        maps = maps_apart(capture)
        if maps is not None and spec.seed == 0:
            measures["map"] = map_figure(
                capture,
                maps.mean.rest.mean(0),
                maps.mean.width,
                name="map",
                title="An agent's trace: attention, mean over layers and heads",
            ).model_dump_json()
        return TrialOutcome(
            exchanges=(exchange,),
            calls=(call_of(exchange),),
            manifests=(packet.manifest,),
            outcome=f"said {exchange.text.strip()!r}",
            measures={
                **measures,
                "sink_share": float(layer_profile(capture).sink.mean()),
                **_profile(capture),
            },
        )

    def verify(self, records: Iterable[TrialRecord]) -> None:
        """The null arm reads the same ids, answers the same and looks the same."""

        def seen(record: TrialRecord) -> dict[str, object]:
            (exchange,) = record.exchanges
            return {
                "prompt ids": exchange.prompt_token_ids,
                "output ids": exchange.output_token_ids,
                "mass by layer": record.measures["by_layer_mass"],
            }

        check_null(records, base=ARMS[0].name, null=NULL_REBUILD, seen=seen)

    def analyse(self, records: Sequence[TrialRecord]) -> Analysis:
        """Recall and mass by depth, counting beside finding, triangles, and layers."""
        return analyse(records)


def _packet(
    model: LocalModel, scenario: NeedleScenario | CageCount | PhoneLimit, context: TrialContext[LocalModel]
) -> Packet:
    request = scenario.request(
        window=model.folder.max_position_embeddings,
        max_output=2 * _most(context),
        run_id=context.salt,
        surface=f"{model.folder.name}/in-process",
    )
    return assembled(model, request)


def _choices(scenario: NeedleScenario | CageCount) -> tuple[str, ...]:
    """What a constrained answer may be: every colour, or every number up to a fifth of the cats."""
    if isinstance(scenario, NeedleScenario):
        return ()
    most = max(LEAST_CHOICES, scenario.cats // 5)
    return scenario.choices or tuple(str(number) for number in range(1, most + 1))


def _holds(text: str, code: str) -> bool:
    """Whether the first line gives this number and no other, in whatever words."""
    return re.findall(r"[0-9]+", text.strip().partition("\n")[0]) == [code]


def _most(context: TrialContext[LocalModel]) -> int:
    return whole_number(context.factors, "decode.max_tokens")


def _profile(capture: Capture) -> dict[str, Measure]:
    profile = layer_profile(capture)
    assert profile.entropy is not None
    return {"by_layer_sink": packed(profile.sink), "by_layer_entropy": packed(profile.entropy)}


def _cage_spans(packet: Packet, scenario: CageCount) -> Iterator[PacketSpan]:
    """The packet's spans, every line of the register by whether the answer follows from it."""
    asked = {
        cage.line
        for cage in scenario.cages
        if (cage.label == scenario.asked_cage)
        or (scenario.asked_cage is None and cage.animal == "cat" and cage.colour == scenario.colour)
    }
    for span in packet.spans:
        message = packet.messages[int(span.path[1])] if span.path[0] == "messages" else None
        if message is None or message.role != "tool" or span.path[-1] != "content":
            yield span
            continue
        at = 0
        for line in (message.content or "").splitlines(keepends=True):
            owner = part_id(item_of(span.item_id), ASKED) if line.rstrip("\n") in asked else span.item_id
            yield PacketSpan(path=span.path, start=at, end=at + len(line), item_id=owner)
            at += len(line)
