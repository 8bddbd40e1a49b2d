from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.agent.tools import (
    Failure,
    GroupName,
    Page,
    Phone,
    SimulatedClock,
    TodoList,
    ToolOutcome,
    World,
    build_toolbox,
)
from experiments.agent.tools.cities import CITIES
from experiments.agent.tools.currency import PER_EURO
from experiments.agent.tools.pages import PAGES
from experiments.agent.tools.web import ranked
from serving.assembler import BarState, TodoStatus
from serving.errors import UsageError
from tests.support.examples import INVARIANT


def call(world: World, name: str, **arguments: object) -> ToolOutcome:
    groups = [group for group in GroupName if group not in ("files", "changes", "directory", "python")]
    return build_toolbox(groups, world).run(name, json.dumps(arguments))


def test_the_time_is_the_scenarios_and_moves_only_when_the_scenario_moves_it() -> None:
    world = World(clock=SimulatedClock(datetime(2026, 3, 1, 23, 30, tzinfo=UTC)))
    assert call(world, "get_time").text == "UTC: 2026-03-01T23:30:00+00:00 (Sunday)"
    assert call(world, "get_time", city=" tokyo ").text == "Tokyo: 2026-03-02T08:30:00+09:00 (Monday)"
    world.clock.advance(timedelta(minutes=45))
    assert call(world, "get_time", city="Delhi").verified["time"] == "2026-03-02T05:45:00+05:30"


def test_a_clock_needs_a_zone_and_never_runs_back() -> None:
    with pytest.raises(UsageError, match="add tzinfo"):
        SimulatedClock(datetime(2026, 1, 1))
    with pytest.raises(UsageError, match="never runs back"):
        SimulatedClock().advance(timedelta(seconds=-1))


def test_the_weather_comes_from_the_table() -> None:
    outcome = call(World(), "get_weather", city="paris", days_ahead=1)
    assert outcome.text == "Paris, tomorrow: 7 °C, rain, wind 17 km/h"
    assert outcome.verified["celsius"] == CITIES["Paris"].days[1].celsius
    assert call(World(), "get_weather", city="Atlantis").failure is Failure.NOT_FOUND
    assert call(World(), "get_weather", city="Paris", days_ahead=3).failure is Failure.WRONG_ARGUMENTS


@pytest.mark.parametrize(
    ("amount", "source", "target", "text"),
    [
        (100, "EUR", "USD", "100 EUR = 108.00 USD"),
        (0.1, "usd", "jpy", "0.1 USD = 15 JPY"),
        (-5.5, "GBP", "GBP", "-5.5 GBP = -5.50 GBP"),
        (1e12, "JPY", "BRL", "1000000000000 JPY = 37003058103.98 BRL"),
    ],
)
def test_an_amount_is_converted_in_decimals(amount: float, source: str, target: str, text: str) -> None:
    assert call(World(), "convert_currency", amount=amount, source=source, target=target).text == text


def test_an_unknown_currency_and_an_amount_out_of_range_are_refused() -> None:
    assert (
        call(World(), "convert_currency", amount=1, source="EUR", target="XXX").failure is Failure.NOT_FOUND
    )
    outcome = call(World(), "convert_currency", amount=1e13, source="EUR", target="USD")
    assert outcome.failure is Failure.WRONG_ARGUMENTS
    assert all(rate > 0 for rate in PER_EURO.values())


def test_a_number_answers_as_its_book_says_call_after_call() -> None:
    world = World(phone=Phone({"+49 30 1": ("busy", "hello")}))
    answers = [call(world, "make_call", number="+49(30)1").text for _ in range(3)]
    assert answers == ["busy", "hello", "hello"]
    assert [made.number for made in world.phone.calls] == ["+49 30 1"] * 3
    assert call(world, "make_call", number="110").failure is Failure.NOT_FOUND
    assert len(world.phone.calls) == 3


def test_no_call_is_lost_between_threads() -> None:
    world = World(phone=Phone({"1": tuple(map(str, range(40)))}))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: call(world, "make_call", number="1").text, range(40)))
    assert sorted(map(int, answers)) == list(range(40))


def test_a_search_finds_the_page_that_says_it_and_a_page_can_be_read() -> None:
    outcome = call(World(), "web_search", query="When does the ferry to Port Alder sail?", results=2)
    url = outcome.verified["first"]
    assert url == "https://news.example/2026/01/12/ferry"
    assert "55 minutes" in call(World(), "open_page", url=url).text
    assert call(World(), "open_page", url="https://news.example/").failure is Failure.NOT_FOUND
    assert call(World(), "web_search", query="zzz").text == "No page has any of these words; try others."
    assert call(World(), "web_search", query="a" * 301).failure is Failure.LIMIT


@settings(INVARIANT)
@given(query=st.text(max_size=60), order=st.permutations(range(len(PAGES))))
def test_a_ranking_does_not_depend_on_the_order_of_the_pages(query: str, order: list[int]) -> None:
    assert ranked(query, [PAGES[index] for index in order]) == ranked(query, PAGES)


def test_equal_pages_are_ranked_by_address() -> None:
    pages = [Page(f"https://{name}.example/", "cats", "cats sleep") for name in "cab"]
    assert [page.url[8] for page in ranked("cats", pages)] == ["a", "b", "c"]


def test_a_todo_list_is_kept_by_code_and_fits_the_status_bar() -> None:
    world = World()
    assert call(world, "list_todos").text == "The list is empty."
    assert call(world, "add_todo", text="  write\nthe report ").text == "Added as 1."
    assert call(world, "add_todo", text="send it").ok
    assert call(world, "complete_todo", id="1").text == "1 is done; 1 left."
    assert call(world, "complete_todo", id="1").ok
    assert call(world, "list_todos").text == "[x] 1: write the report\n[ ] 2: send it"
    assert BarState(todo=world.todo.items).todo[0].status is TodoStatus.COMPLETED


def test_a_todo_list_refuses_what_it_does_not_know_and_what_is_too_much() -> None:
    world = World(todo=TodoList())
    assert call(world, "complete_todo", id="1").failure is Failure.NOT_FOUND
    assert call(world, "add_todo", text=" ").failure is Failure.LIMIT
    assert call(world, "add_todo", text="x" * 301).failure is Failure.LIMIT
    for number in range(100):
        world.todo.add(str(number))
    assert call(world, "add_todo", text="one more").failure is Failure.LIMIT
