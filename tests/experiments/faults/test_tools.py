"""What each fault does to the tool list; messages are left alone by all of them."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest

from experiments.faults import FaultContext
from experiments.faults.tools_only_relevant import ToolsOnlyRelevant
from serving.assembler import Draft, DraftTool
from tests.support.sabotage import CALLS, RUN, sent

NAMES = [tool.name for tool in RUN.tools]


def offered(call: int, *names: str, seed: int = 0) -> list[str]:
    return [tool.name for tool in sent(call, *names, seed=seed).packet.tools]


@pytest.mark.parametrize("name", ["tools-shuffled", "tools-by-use", "tools-only-relevant", "tools-appended"])
def test_messages_are_left_alone(name: str) -> None:
    assert sent(5, name).packet.messages == sent(5).packet.messages


def test_shuffled_tools_are_the_same_tools_in_an_order_that_depends_on_seed_and_call() -> None:
    orders = [tuple(offered(call, "tools-shuffled")) for call in range(CALLS)]
    assert {tuple(sorted(order)) for order in orders} == {tuple(NAMES)}
    assert len(set(orders)) > 3
    assert offered(2, "tools-shuffled", seed=1) != offered(2, "tools-shuffled", seed=0)


def test_the_most_used_tool_comes_first_and_unused_ones_keep_their_order() -> None:
    assert offered(0, "tools-by-use") == NAMES
    assert offered(1, "tools-by-use")[0] == "read_file"
    last = offered(CALLS - 1, "tools-by-use")
    assert last[0] == "search_text"
    assert last[-2:] == ["ask_weather", "book_boat"]
    assert sorted(last) == NAMES


def test_only_the_four_tools_that_fit_the_last_words_are_offered_in_their_old_order() -> None:
    chosen = [offered(call, "tools-only-relevant") for call in range(CALLS)]
    assert all(len(tools) == 4 and tools == [name for name in NAMES if name in tools] for tools in chosen)
    assert "read_file" in chosen[1], "its result was the last thing said"
    assert {"search_text", "list_folder"} <= set(chosen[2])
    assert all(one != two for one, two in pairwise(chosen))


def test_the_tool_that_ends_a_turn_is_offered_whatever_fits() -> None:
    tools = tuple(DraftTool(spec=spec, item_id=f"tool:{spec.name}") for spec in RUN.tools)
    last = NAMES[-1]
    context = FaultContext(
        call=0, now=datetime(2026, 1, 5, tzinfo=UTC), seed=0, always_offered=frozenset({last})
    )
    kept = ToolsOnlyRelevant.build(context).apply(Draft(messages=(), tools=tools)).plain_tools()
    # Nothing was said, so the first four fit as well as any.
    assert [tool.name for tool in kept] == [*NAMES[:4], last]


def test_the_growing_list_begins_with_three_tools_and_never_moves_one() -> None:
    assert [offered(call, "tools-appended") for call in range(CALLS)] == [
        NAMES[:3],
        NAMES[:4],
        NAMES[:5],
        *[NAMES] * 4,
    ]
