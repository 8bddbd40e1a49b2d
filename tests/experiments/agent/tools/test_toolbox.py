from __future__ import annotations

import hashlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from experiments.agent.tools import (
    TOOL_SPECS,
    Failure,
    GroupName,
    Toolbox,
    Workspace,
    World,
    build_toolbox,
)
from experiments.agent.tools.calculator import calculator_tools
from experiments.agent.tools.tool import MAX_OUTCOME_CHARACTERS
from serving.assembler import Authority, Stage, stage_allows
from serving.assembler.record import canonical_json
from serving.errors import UsageError

OFFLINE = tuple(name for name in GroupName if name is not GroupName.PYTHON)


@pytest.fixture
def tools(root: Path) -> Toolbox:
    return build_toolbox(OFFLINE, World(Workspace(root)))


def test_the_nine_definitions_of_the_committed_results_keep_their_bytes(tools: Toolbox) -> None:
    text = canonical_json([spec.to_api() for spec in TOOL_SPECS])
    assert hashlib.sha256(text.encode()).hexdigest() == (
        "fd2e798739cdb2602246ca9d4edf04edce89864aa95113d938a261dd6d17d6b8"
    )
    assert tools.specs[:9] == TOOL_SPECS


def test_tools_come_in_the_order_of_the_groups_whatever_was_asked_first(root: Path) -> None:
    world = World(Workspace(root))
    forwards = build_toolbox(OFFLINE, world).specs
    assert build_toolbox(tuple(reversed(OFFLINE)), world).specs == forwards
    assert build_toolbox([GroupName.WEATHER, GroupName.CLOCK]).specs[0].name == "get_time"


def test_every_tool_has_a_contract_and_a_definition_that_stays_short(tools: Toolbox) -> None:
    assert len(tools.contracts) == len({contract.spec.name for contract in tools.contracts}) >= 20
    for contract in tools.contracts:
        assert len(canonical_json(contract.spec.to_api())) <= 300, contract.spec.name
        assert Failure.WRONG_ARGUMENTS in contract.failures
        if contract.authority is not Authority.READ:
            assert contract.effect, contract.spec.name


def test_a_tool_that_changes_something_says_what_holds_afterwards(tools: Toolbox) -> None:
    for tool in tools.tools:
        if tool.contract.authority is not Authority.READ or not tool.contract.idempotent:
            assert tool.postcondition, tool.name


def test_stages_offer_reading_first_and_the_telephone_only_when_it_is_approved(tools: Toolbox) -> None:
    def offered(stage: Stage, command: str | None = None) -> set[str]:
        return {contract.spec.name for contract in tools.contracts if stage_allows(contract, stage, command)}

    assert not {"write_file", "make_call"} & offered(Stage.DISCOVERY)
    assert "write_file" in offered(Stage.ANALYSIS) and "make_call" not in offered(Stage.ANALYSIS)
    assert "make_call" not in offered(Stage.ACTION)
    assert "make_call" in offered(Stage.ACTION, "make_call")


def test_a_name_is_given_once() -> None:
    with pytest.raises(UsageError, match="calculate twice"):
        Toolbox([*calculator_tools(), *calculator_tools()])


def test_file_tools_need_a_workspace() -> None:
    with pytest.raises(UsageError, match="give the world a root"):
        build_toolbox([GroupName.FILES])


def test_no_tool_is_an_outcome_too() -> None:
    assert "the tools are none" in Toolbox([]).run("read_file", "{}").text


def test_a_call_that_was_cancelled_before_it_began_does_nothing(root: Path) -> None:
    tools, cancel = build_toolbox(OFFLINE, World(Workspace(root))), threading.Event()
    cancel.set()
    outcome = tools.run("write_file", '{"path": "a", "text": "x"}', cancel=cancel)
    assert outcome.failure is Failure.CANCELLED and not (root / "a").exists()


def test_wrong_arguments_are_told_with_what_the_tool_takes(tools: Toolbox) -> None:
    outcome = tools.run("convert_currency", '{"amount": "12", "source": "EUR", "target": "USD"}')
    assert outcome.failure is Failure.WRONG_ARGUMENTS
    assert "It takes amount: number, source: string, target: string." in outcome.text
    assert "It takes no arguments." in tools.run("list_todos", '{"all": true}').text


def test_arguments_beyond_a_size_are_not_even_read(tools: Toolbox) -> None:
    outcome = tools.run("calculate", '{"expression": "' + "1" * 2_000_000 + '"}')
    assert outcome.failure is Failure.LIMIT and len(outcome.text) < MAX_OUTCOME_CHARACTERS


def test_independent_calls_run_side_by_side_and_give_the_same_as_one_by_one(tools: Toolbox) -> None:
    calls = [("calculate", json.dumps({"expression": f"{n} ** 2"})) for n in range(50)] + [
        ("head", json.dumps({"path": "src/deep/note.txt", "lines": n})) for n in range(1, 50)
    ]
    with ThreadPoolExecutor(8) as pool:
        side_by_side = list(pool.map(lambda call: tools.run(*call), calls))
    assert side_by_side == [tools.run(*call) for call in calls]
