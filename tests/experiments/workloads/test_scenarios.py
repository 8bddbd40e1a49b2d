"""What holds for every scenario, over seeds and difficulties."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments.workloads import (
    Ask,
    CageAsk,
    Forbidden,
    Marking,
    Reason,
    Scenario,
    cage_count,
    needle,
    phone_limit,
    rare_constraint,
    tenant_mix,
    version_clash,
)
from serving.assembler import ContextPolicy, FixedCounter, Packet, SuffixPosition, assemble
from serving.errors import UsageError
from tests.support.solvers import SOLVERS

Build = Callable[[], Scenario]

SEEDS = st.integers(0, 10_000)


def _kind(build: Callable[..., Scenario], **difficulty: st.SearchStrategy[Any]) -> st.SearchStrategy[Build]:
    return st.fixed_dictionaries({"seed": SEEDS, **difficulty}).map(lambda chosen: partial(build, **chosen))


KINDS: dict[str, st.SearchStrategy[Build]] = {
    "phone_limit": _kind(
        phone_limit, calls=st.integers(0, 20), other_steps=st.integers(0, 12), ask=st.sampled_from(Ask)
    ),
    "cage_count": _kind(
        cage_count,
        cats=st.integers(2, 300),
        others=st.integers(0, 60),
        page=st.integers(1, 50),
        ask=st.sampled_from(CageAsk),
    ),
    "needle": _kind(
        needle,
        depth=st.floats(0, 1),
        tokens=st.integers(1, 3000),
        needles=st.just(6),
        asked=st.integers(1, 6),
    ),
    "rare_constraint": _kind(
        rare_constraint,
        rooms=st.integers(4, 30),
        distance=st.integers(3, 20),
        forbidden=st.sampled_from(Forbidden),
    ),
    "version_clash": _kind(
        version_clash,
        versions=st.integers(2, 8),
        other_documents=st.integers(0, 10),
        marking=st.sampled_from(Marking),
    ),
    "tenant_mix": _kind(
        tenant_mix, tenants=st.integers(2, 8), places=st.integers(1, 8), filtered=st.booleans()
    ),
}

ANY = st.one_of(*KINDS.values())

quickly = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])


def packet(scenario: Scenario, policy: ContextPolicy | None = None) -> Packet:
    built = assemble(
        scenario.request(window=1_000_000, max_output=100), policy or ContextPolicy(), FixedCounter()
    )
    assert isinstance(built, Packet)
    return built


@quickly
@given(build=ANY)
def test_the_same_seed_and_difficulty_give_the_same_bytes(build: Build) -> None:
    assert build().model_dump_json() == build().model_dump_json()
    assert build() == build()


@pytest.mark.parametrize("kind", KINDS)
def test_two_seeds_differ_in_names_or_numbers_and_not_in_the_question_alone(kind: str) -> None:
    builds = {
        "phone_limit": phone_limit,
        "cage_count": cage_count,
        "needle": needle,
        "rare_constraint": rare_constraint,
        "version_clash": version_clash,
        "tenant_mix": tenant_mix,
    }
    made = [builds[kind](seed) for seed in range(40)]  # type: ignore[operator]
    stories = {repr((one.trajectory.turns[:-1], one.items, getattr(one, "document", ""))) for one in made}
    assert len(stories) == 40
    answers = {one.expected for one in made}
    assert len(answers) > (1 if kind == "phone_limit" else 5 if kind == "cage_count" else 35)


@quickly
@given(build=ANY)
def test_nothing_that_does_not_lead_to_the_answer_holds_it(build: Build) -> None:
    scenario = build()
    for answer in scenario.expected.split(", "):
        assert not [
            text
            for text in scenario.distractors()
            if re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text, re.IGNORECASE)
        ]


@quickly
@given(build=ANY, position=st.sampled_from(SuffixPosition))
def test_the_answer_follows_from_what_is_sent(build: Build, position: SuffixPosition) -> None:
    scenario = build()
    solve = SOLVERS[type(scenario).__name__]
    assert solve(packet(scenario, ContextPolicy(suffix_position=position))) == scenario.expected


@quickly
@given(build=ANY)
def test_the_right_answer_passes_in_each_agreed_form(build: Build) -> None:
    scenario = build()
    for text in (
        scenario.expected,
        f"Answer: {scenario.expected}",
        f"I look closely.\nIt is not easy.\n\n**Answer:** {scenario.expected}.",
        f"answer: `{scenario.expected}`\n",
    ):
        grade = scenario.grade(text)
        assert grade.reason is Reason.CORRECT, (text, grade)
        assert grade.passed
        assert grade.got is not None


@quickly
@given(build=ANY, junk=st.text(max_size=60))
def test_anything_else_does_not_pass_and_says_why(build: Build, junk: str) -> None:
    scenario = build()
    others = [choice for choice in scenario.choices if choice != scenario.expected] or ["987654321"]
    for text in (
        "",
        "I do not know.",
        f"The answer is {scenario.expected}, I think.",
        f"Answer: {others[0]}",
        f"Answer: {scenario.expected}\nAnswer: {others[0]}",
        f"Answer: {scenario.expected} or {others[0]}",
        f"First line\n{scenario.expected}",
    ):
        grade = scenario.grade(text)
        assert not grade.passed, text
        assert grade.detail
    grade = scenario.grade(junk)
    assert grade.passed is (grade.reason is Reason.CORRECT)
    if scenario.expected.casefold() not in junk.casefold():
        # A number may be written with separators or zeros, and is still that number.
        assert not grade.passed or re.sub(r"[0,]", "", junk).strip("*_`\"' \n.") != junk.strip()


@quickly
@given(build=ANY)
def test_a_scenario_describes_itself_in_one_line(build: Build) -> None:
    scenario = build()
    words = scenario.describe()
    assert "\n" not in words
    assert f"seed {scenario.seed}:" in words
    assert words.endswith(f"→ {scenario.expected}")


@quickly
@given(build=ANY)
def test_the_question_is_the_last_turn_and_never_holds_an_open_answer(build: Build) -> None:
    scenario = build()
    assert str(getattr(scenario.trajectory.turns[-1], "text", "")).endswith(scenario.question)
    assert len(scenario.question) < 300
    if scenario.choices:
        assert scenario.expected in scenario.choices
    else:
        assert not re.search(rf"\b{re.escape(scenario.expected)}\b", scenario.question)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (partial(phone_limit, 0, calls=4, limit=3), "a limit of at least 4"),
        (partial(cage_count, 0, cats=5, counted=5), "0 < counted < cats"),
        (partial(needle, 0, depth=1.5), "a depth in \\[0, 1\\]"),
        (partial(needle, 0, needles=2, asked=3), "asked=3"),
        (partial(rare_constraint, 0, rooms=3), "at least 4 rooms"),
        (partial(version_clash, 0, versions=1), "2 to 8 versions"),
        (partial(tenant_mix, 0, tenants=1), "2 to 20 tenants"),
    ],
)
def test_an_impossible_difficulty_is_refused_in_one_sentence(build: Build, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        build()
