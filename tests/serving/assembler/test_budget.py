from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from serving.assembler import ContextItem, Evidence, Instruction, Rendered, Scope
from serving.assembler.budget import MOST_REPACKS, fit
from serving.assembler.packers import GreedyPacker
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
