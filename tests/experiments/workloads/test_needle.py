from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.faults import FaultContext, build_faults
from experiments.workloads import NeedleScenario, Reason, needle
from serving.assembler import ContextPolicy, FixedCounter, Packet, Renderer, assemble, item_of
from serving.chat import ChatRenderer
from serving.errors import UsageError
from tests.support.sabotage import BEGIN
from tests.support.tiny_folder import tiny_folder

DEPTHS = [number / 10 for number in range(11)]


def packet(scenario: NeedleScenario, *faults: str, renderer: Renderer | None = None) -> Packet:
    built = assemble(
        scenario.request(window=1_000_000, max_output=10),
        ContextPolicy(),
        renderer or FixedCounter(),
        build_faults(faults, FaultContext(0, BEGIN, 0)),
    )
    assert isinstance(built, Packet)
    return built


@settings(max_examples=40)
@given(seed=st.integers(0, 999), depth=st.floats(0, 1), needles=st.integers(1, 8))
def test_every_needle_stands_where_it_says(seed: int, depth: float, needles: int) -> None:
    scenario = needle(seed, depth=depth, needles=needles, tokens=800)
    for one in scenario.needles:
        assert scenario.document[one.start : one.end] == one.sentence
        assert scenario.document.count(one.code) == 1


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_depth_of_the_needle_is_the_one_asked_for(depth: float) -> None:
    scenario = needle(3, depth=depth, tokens=4000)
    place = scenario.needles[0].start / (len(scenario.document) - len(scenario.needles[0].sentence))
    assert abs(place - depth) < 0.02


def test_only_the_needle_moves_with_the_depth() -> None:
    texts = {
        needle(3, depth=depth).document.replace(needle(3).needles[0].sentence + "\n", "")
        for depth in DEPTHS[:-1]
    }
    assert len(texts) == 1
    others = {needle(3, depth=depth, needles=5).needles[1:][0].code for depth in DEPTHS}
    assert len(others) == 1


@settings(max_examples=30)
@given(seed=st.integers(0, 999), tokens=st.integers(100, 6000))
def test_the_text_has_about_the_tokens_asked_for_by_the_counter_given(seed: int, tokens: int) -> None:
    for count in (lambda text: -(-len(text) // 4), lambda text: len(text.split())):
        document = needle(seed, tokens=tokens, count=count).document
        assert sum(count(f"{line}\n") for line in document.splitlines()) in range(tokens, tokens + 30)


def test_the_filler_holds_no_figure() -> None:
    scenario = needle(0, needles=5, asked=5, tokens=3000)
    assert not [line for line in scenario.distractors() if re.search(r"\d", line)]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("{0}, {1}", Reason.CORRECT),
        ("{0},{1}", Reason.CORRECT),
        ("{1}, {0}", Reason.OTHER_ITEM),
        ("{0}", Reason.PARTIAL),
        ("{2}", Reason.OTHER_ITEM),
        ("{0}, {2}", Reason.OTHER_ITEM),
        ("111", Reason.WRONG),
        ("north gate", Reason.NO_ANSWER),
    ],
)
def test_several_codes_are_asked_in_order_and_others_told_apart(answer: str, reason: Reason) -> None:
    scenario = needle(1, needles=4, asked=2)
    codes = [one.code for one in scenario.needles]
    assert scenario.grade(answer.format(*codes)).reason is reason


@pytest.mark.parametrize("faults", [(), ("profile-in-first-message",), ("clock-in-last-user-message",)])
@pytest.mark.parametrize("depth", [0.0, 0.4, 1.0])
def test_spans_set_the_needles_apart_and_cover_the_rest_as_before(
    depth: float, faults: tuple[str, ...]
) -> None:
    scenario = needle(6, depth=depth, needles=3, tokens=300)
    built = packet(scenario, *faults)
    spans = scenario.spans(built)
    content = built.messages[1].content or ""
    own = [span for span in spans if span.path == ("messages", 1, "content")]
    parts = {span.item_id: content[span.start : span.end] for span in own if "#" in span.item_id}
    assert parts == {f"turn-000#needle-{n}": one.sentence for n, one in enumerate(scenario.needles)}
    (before,) = [span for span in built.spans if span.path == ("messages", 1, "content")]
    end = len(content) if before.end is None else before.end
    covered = sorted((span.start, span.end) for span in own)
    assert covered[0][0] == before.start and covered[-1][1] == end
    assert all(one[1] == two[0] for one, two in pairwise(covered))
    assert [span for span in spans if span not in own] == [span for span in built.spans if span != before]


def test_a_renderer_counts_the_tokens_of_every_needle(tmp_path: Path) -> None:
    renderer = ChatRenderer(tiny_folder(tmp_path, "qwen2_5"))
    scenario = needle(2, depth=0.5, needles=2, tokens=300)
    built = packet(scenario, renderer=renderer)
    rendered = renderer.render(built.messages, built.tools, scenario.spans(built))
    sizes = {
        span.item_id: span.end - span.start for span in rendered.spans if span.item_id.startswith("turn-000#")
    }
    # One token for each byte.
    assert sizes == {f"turn-000#needle-{n}": len(one.sentence) for n, one in enumerate(scenario.needles)}
    assert {item_of(span.item_id) for span in rendered.spans} == {"system", "turn-000", "framing"}


def test_another_text_in_the_packet_is_refused() -> None:
    with pytest.raises(UsageError, match="holds this scenario's text unchanged"):
        needle(2, depth=0.1).spans(packet(needle(2, depth=0.9)))
