from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from serving.assembler import ContextItem, Evidence, Instruction, Rendered, Scope
from serving.assembler.budget import MOST_REPACKS, fit
from serving.assembler.packers import GreedyPacker, Sized
from serving.assembler.renderer import TokenSpan

REQUIRED = ContextItem(id="rule", payload=Instruction(text="be brief"), tokens=10)


def optional(count: int, tokens: int | None) -> list[ContextItem]:
    return [
        ContextItem(id=f"e{index}", payload=Evidence(text="x"), scope=Scope(tenant="t1"), tokens=tokens)
        for index in range(count)
    ]


def rendering(
    size_of: Callable[[str], int], framing_of: Callable[[int], int]
) -> Callable[[frozenset[str]], Rendered]:
    """A renderer in which items have sizes and framing depends on how many there are."""

    def render(chosen: frozenset[str]) -> Rendered:
        spans = [TokenSpan(0, 10, "rule")]
        for item_id in sorted(chosen):
            spans.append(TokenSpan(spans[-1].end, spans[-1].end + size_of(item_id), item_id))
        end = spans[-1].end + framing_of(len(chosen))
        return Rendered(tuple(range(end)), "", (*spans, TokenSpan(spans[-1].end, end, "framing")))

    return render


def test_framing_that_no_estimate_knows_costs_an_item_and_never_the_reserve() -> None:
    """Three items fit by their sizes (10 + 3 × 30 = 100); rendered together they are two tokens too many."""
    items = optional(3, 30)
    worth = {"e0": 0.9, "e1": 0.8, "e2": 0.7}
    fitted = fit(
        [REQUIRED], items, worth, 100, GreedyPacker(), rendering(lambda _: 30, lambda count: count - 1)
    )
    assert fitted.chosen == {"e0", "e1"}
    assert fitted.overflow == 0
    assert len(fitted.rendered.token_ids) == 71


def test_the_required_items_alone_decide_the_overflow() -> None:
    fitted = fit(
        [REQUIRED], optional(2, 1), {"e0": 1, "e1": 1}, 8, GreedyPacker(), rendering(lambda _: 1, lambda _: 4)
    )
    assert fitted.chosen == frozenset()
    assert fitted.overflow == 10 + 4 - 8


@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=10),
    given_tokens=st.one_of(st.none(), st.integers(0, 60)),
    framing=st.lists(st.integers(0, 40), min_size=11, max_size=11),
    budget=st.integers(10, 200),
)
def test_a_selection_is_found_whenever_the_required_items_fit(
    sizes: list[int], given_tokens: int | None, framing: list[int], budget: int
) -> None:
    """Framing jumps about with the number of items, so that no estimate is ever right."""
    items = optional(len(sizes), given_tokens)
    worth = {item.id: (index + 1) / 10 for index, item in enumerate(items)}
    render = rendering(lambda item_id: sizes[int(item_id[1:])], lambda count: framing[count])
    fitted = fit([REQUIRED], items, worth, budget, GreedyPacker(), render)
    assert fitted.overflow == max(0, len(fitted.rendered.token_ids) - budget)
    assert len(fitted.rendered.token_ids) == len(render(fitted.chosen).token_ids)
    assert fitted.renders <= MOST_REPACKS + len(items) + 1
    if fitted.overflow:
        assert fitted.chosen == frozenset()
        assert 10 + framing[0] > budget


class Scripted:
    """A packer that proposes what it is told to, and remembers the room that it was given."""

    def __init__(self, *proposals: set[str]) -> None:
        self.proposals = [frozenset(proposal) for proposal in proposals]
        self.rooms: list[int] = []

    def pack(self, items: Sequence[Sized], capacity: int) -> frozenset[str]:
        self.rooms.append(capacity)
        return self.proposals[min(len(self.rooms), len(self.proposals)) - 1]


def plain(size: int = 30) -> Callable[[frozenset[str]], Rendered]:
    return rendering(lambda _: size, lambda _: 2)


def test_the_room_is_what_framing_and_required_items_leave() -> None:
    packer = Scripted({"e0"}, {"e1"}, {"e1"})
    fit([REQUIRED], optional(2, 30), {"e0": 0.5, "e1": 0.4}, 100, packer, plain())
    assert packer.rooms == [100 - 10, 100 - 10 - 2, 100 - 10 - 2]


def test_a_selection_may_use_the_whole_budget() -> None:
    fitted = fit([REQUIRED], optional(2, 30), {"e0": 0.5, "e1": 0.4}, 72, GreedyPacker(), plain())
    assert fitted.chosen == {"e0", "e1"}
    assert (fitted.overflow, fitted.renders) == (0, 1)


def test_of_the_selections_that_fit_the_most_useful_is_taken_then_the_smallest() -> None:
    items = optional(3, 30)
    worth = {"e0": 0.5, "e1": 0.4, "e2": 0.5}
    sizes = {"e0": 30, "e1": 30, "e2": 20}
    render = rendering(lambda item_id: sizes[item_id], lambda _: 2)

    def chosen(*proposals: set[str]) -> frozenset[str]:
        return fit([REQUIRED], items, worth, 50, Scripted(*proposals), render).chosen

    assert chosen({"e1"}, {"e0"}, {"e0"}) == {"e0"}
    assert chosen({"e0"}, {"e1"}, {"e1"}) == {"e0"}
    assert chosen({"e0"}, {"e2"}, {"e2"}) == {"e2"}
    assert chosen({"e2"}, {"e0"}, {"e0"}) == {"e2"}


def test_a_selection_that_fills_the_budget_is_as_good_as_any() -> None:
    packer = Scripted({"e0", "e1"}, {"e0"}, {"e0"})
    items = optional(3, 30)
    worth = {"e0": 0.5, "e1": 0.4, "e2": 0.3}
    assert fit([REQUIRED], items, worth, 72, packer, plain()).chosen == {"e0", "e1"}


def test_of_equal_selections_the_first_stays() -> None:
    packer = Scripted({"e0"}, {"e1"}, {"e1"})
    assert fit([REQUIRED], optional(2, 30), {"e0": 0.5, "e1": 0.5}, 50, packer, plain()).chosen == {"e0"}


def test_small_differences_of_utility_decide() -> None:
    worth = {"e0": 0.310000001, "e1": 0.310000002}
    packer = Scripted({"e0"}, {"e1"}, {"e1"})
    assert fit([REQUIRED], optional(2, 30), worth, 50, packer, plain()).chosen == {"e1"}


def test_the_search_for_a_better_selection_ends_after_its_renderings() -> None:
    names = [f"e{index}" for index in range(20)]
    packer = Scripted(*({name, "e19"} for name in names[:19]))
    worth = dict.fromkeys(names, 0.5)
    fitted = fit([REQUIRED], optional(20, 1), worth, 20, packer, plain(size=30))
    assert len(packer.rooms) == MOST_REPACKS
    assert fitted.chosen == frozenset()
    assert fitted.renders == MOST_REPACKS + 1


def test_where_the_packer_never_fits_the_least_useful_go_first_and_no_more_than_must() -> None:
    items = optional(4, 30)
    worth = {"e0": 0.2, "e1": 0.9, "e2": 0.1, "e3": 0.9}
    packer = Scripted({"e0", "e1", "e2", "e3"})
    fitted = fit([REQUIRED], items, worth, 72, packer, plain())
    assert fitted.chosen == {"e1", "e3"}
    tied = fit([REQUIRED], items, dict.fromkeys(worth, 0.5), 72, packer, plain())
    assert tied.chosen == {"e2", "e3"}


def test_a_size_that_was_rendered_overrules_the_estimate_and_corrects_the_others() -> None:
    """Two items said to cost 40 and costing 10: the one not yet rendered is expected to cost 10 as well."""
    items = [*optional(2, 40), *optional(3, None)[2:]]
    worth = {"e0": 0.9, "e1": 0.8, "e2": 0.7}
    fitted = fit([REQUIRED], items, worth, 60, Scripted({"e0"}, {"e0"}), plain(size=10))
    assert fitted.expected["e0"] == 10
    assert fitted.expected["e1"] == round(40 * (10 + 10) / (40 + 10))
    short = fit([REQUIRED], optional(1, None), {"e0": 0.5}, 8, Scripted(set()), plain())
    assert short.expected["e0"] == round(len(optional(1, None)[0].content_json.encode()) / 4)
