from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.agent.tools import Toolbox, Workspace, World
from experiments.workloads.tool_prompt_calls import DEFAULTS, RUN_PYTHON, ExpectedCall
from experiments.workloads.tool_prompt_files import TRIPS, write_trips
from experiments.workloads.tool_prompts import OFFERED, PromptClass, ToolPrompt, offered_tools, tool_prompt
from serving.errors import UsageError

KINDS = st.sampled_from(PromptClass)
SEEDS = st.integers(0, 10_000)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Toolbox:
    root = tmp_path_factory.mktemp("trips")
    write_trips(root)
    return offered_tools(World(workspace=Workspace(root)), interpreter=False)


@pytest.mark.parametrize("kind", PromptClass)
def test_no_two_of_the_first_hundred_and_twenty_prompts_of_a_class_are_the_same(kind: PromptClass) -> None:
    assert len({tool_prompt(kind, seed).text for seed in range(120)}) == 120


@given(KINDS, SEEDS)
def test_a_seed_gives_the_same_prompt_every_time(kind: PromptClass, seed: int) -> None:
    assert tool_prompt(kind, seed) == tool_prompt(kind, seed)


@given(KINDS, SEEDS)
def test_the_number_of_expected_calls_is_that_of_the_class(kind: PromptClass, seed: int) -> None:
    calls = len(tool_prompt(kind, seed).calls)
    allowed = {
        PromptClass.SINGLE: {1},
        PromptClass.PARALLEL: {2, 3},
        PromptClass.CHAINED: {2},
        PromptClass.NO_TOOL: {0},
        PromptClass.TOOL_ERROR: {1, 2},
    }
    assert calls in allowed[kind]


def asked(prompt: ToolPrompt, tools: Toolbox) -> list[tuple[ExpectedCall, bool, str]]:
    answers = []
    for call in prompt.calls:
        if call.name != RUN_PYTHON:
            outcome = tools.run(call.name, json.dumps(call.arguments))
            answers.append((call, outcome.ok, outcome.text))
    return answers


@pytest.mark.parametrize("kind", PromptClass)
def test_the_tools_take_every_expected_call_and_fail_where_the_class_says_so(
    kind: PromptClass, tools: Toolbox
) -> None:
    for seed in range(60):
        prompt = tool_prompt(kind, seed)
        went_well = [ok for _, ok, _ in asked(prompt, tools)]
        if kind is PromptClass.TOOL_ERROR:
            assert went_well == ([False] if prompt.fails else [False, True])
        else:
            assert all(went_well)
            assert not prompt.fails


def test_the_second_call_of_a_chain_holds_what_only_the_first_one_tells(tools: Toolbox) -> None:
    for seed in range(60):
        prompt = tool_prompt(PromptClass.CHAINED, seed)
        (_, _, told), (second, _, _) = asked(prompt, tools)
        optional = DEFAULTS.get(second.name, {})
        needed = [str(value) for name, value in second.arguments.items() if name not in optional]
        new = Counter(tokens(" ".join(needed))) - Counter(tokens(prompt.text))
        assert new, prompt.text
        assert new.keys() <= set(tokens(told)), (prompt.text, told)


def tokens(text: str) -> list[str]:
    """Words and numbers; 12.50 and 12.5 are one number."""
    found = re.findall(r"[A-Za-z]{3,}|-?\d+(?:\.\d+)?", text.replace(",", ""))
    return [word.rstrip("0").rstrip(".") if "." in word else word for word in found]


def test_both_halves_of_the_errors_are_asked_the_ones_with_a_way_out_and_the_ones_without() -> None:
    fails = [tool_prompt(PromptClass.TOOL_ERROR, seed).fails for seed in range(40)]
    assert fails.count(True) == fails.count(False) == 20


def test_every_tool_is_offered_in_one_order_and_only_these(tools: Toolbox) -> None:
    assert [tool.name for tool in tools.tools] == [name for name in OFFERED if name != RUN_PYTHON]


def test_only_prompts_that_run_a_program_need_isolation() -> None:
    needy = [seed for seed in range(36) if tool_prompt(PromptClass.SINGLE, seed).needs_isolation]
    assert needy == list(range(5, 36, 6))
    others = [kind for kind in PromptClass if kind is not PromptClass.SINGLE]
    assert not any(tool_prompt(kind, seed).needs_isolation for kind in others for seed in range(30))


def test_a_program_is_expected_to_print_what_the_question_asks_for() -> None:
    prompt = tool_prompt(PromptClass.SINGLE, 5)
    digits = re.search(r"2\*\*(\d+)", prompt.text)
    assert digits is not None
    assert prompt.calls[0].prints == str(sum(map(int, str(2 ** int(digits[1])))))


def test_every_note_is_written_as_it_says(tmp_path: Path) -> None:
    write_trips(tmp_path)
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.txt")} == {
        trip.path for trip in TRIPS
    }
    assert all((tmp_path / trip.path).read_text() == trip.text for trip in TRIPS)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(UsageError, match="0 or more"):
        tool_prompt(PromptClass.SINGLE, -1)
