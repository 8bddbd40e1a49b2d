"""Masks and status bars through `assemble`: what was shown once is shown again, also after a restart."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.assembler import (
    AssemblyRequest,
    BarMode,
    BarPolicy,
    BarState,
    Carry,
    ContextItem,
    ContextPolicy,
    FixedCounter,
    MaskingLimits,
    Packet,
    RequestContext,
    StatusBar,
    ToolCall,
    ToolContract,
    ToolResult,
    ToolSpec,
    ToolStep,
    Turn,
    UserTurn,
    Verdict,
    assemble,
    history_items,
    replay,
)
from serving.errors import UsageError
from tests.support.examples import INVARIANT

CONTEXT = RequestContext(tenant="t1", actor="u1", now="2026-10-02T00:00:00Z")
MASKING = ContextPolicy(masking=MaskingLimits(threshold=40))
REPLACE = ContextPolicy(status_bar=BarPolicy(mode=BarMode.REPLACE))
NOTHING = Carry()
APPEND = ContextPolicy(status_bar=BarPolicy(mode=BarMode.APPEND))


def step(number: int, content: str, tool: str = "read") -> ToolStep:
    call = ToolCall(id=f"c{number}", name=tool, arguments="{}")
    return ToolStep(calls=(call,), results=(ToolResult(call_id=call.id, content=content),))


LONG = [step(n, f"{n} " + "word " * 40) for n in range(4)]
TURNS: list[Turn] = [UserTurn(text="a"), *LONG, UserTurn(text="b"), step(9, "short")]


def request(turns: list[Turn], carry: Carry = NOTHING, **fields: object) -> AssemblyRequest:
    return AssemblyRequest(
        context=CONTEXT,
        history=history_items(turns),
        window=100_000,
        max_output=10,
        carry=carry,
        **fields,
    )


def packet(turns: list[Turn], policy: ContextPolicy, carry: Carry = NOTHING, **fields: object) -> Packet:
    built = assemble(request(turns, carry, **fields), policy, FixedCounter())
    assert isinstance(built, Packet)
    return built


def contents(built: Packet) -> list[str]:
    return [message.content or "" for message in built.messages]


def test_a_policy_without_masking_shows_every_result() -> None:
    built = packet(TURNS, ContextPolicy())
    assert built.manifest.masking is None
    assert built.carry == Carry()
    assert all(LONG[n].results[0].content in contents(built) for n in range(4))


def test_old_results_over_the_threshold_are_masked_and_the_manifest_says_so() -> None:
    built = packet(TURNS, MASKING)
    shown = "\n".join(contents(built))
    assert LONG[0].results[0].content not in shown
    assert "short" in shown
    masking = built.manifest.masking
    assert masking is not None
    assert {mask.owner for mask in masking.masks} == set(built.carry.masked)
    assert masking.tokens_after < masking.tokens_before
    assert LONG[0].results[0].content not in built.manifest.model_dump_json()


def test_what_was_masked_keeps_its_bytes_when_the_limit_would_now_spare_it() -> None:
    first = packet(TURNS, MASKING)
    later = packet([*TURNS, UserTurn(text="c")], MASKING, first.carry)
    assert later.messages[: len(first.messages)] == first.messages
    spared = ContextPolicy(masking=MaskingLimits(threshold=10_000))
    assert packet(TURNS, spared, first.carry).messages == first.messages
    assert packet(TURNS, spared).messages != first.messages


def test_a_carry_read_back_from_disk_gives_the_same_bytes() -> None:
    for policy in (MASKING, APPEND):
        carry = packet(TURNS, policy).carry
        read = Carry.model_validate_json(carry.model_dump_json())
        more = [*TURNS, UserTurn(text="c")]
        assert packet(more, policy, read).messages == packet(more, policy, carry).messages


def test_a_contract_that_calls_its_results_boilerplate_has_them_masked() -> None:
    tool = ContextItem(
        id="tool:read",
        payload=ToolContract(spec=ToolSpec(name="read", description="", parameters={}), boilerplate=True),
    )
    calm = ContextPolicy(masking=MaskingLimits(threshold=10_000))
    assert packet(TURNS, calm).carry.masked == {}
    assert len(packet(TURNS, calm, tools=(tool,)).carry.masked) == 4


def test_the_bar_is_built_from_the_whole_log_and_stands_last() -> None:
    built = packet(TURNS, REPLACE, bar=BarState(call_limits={"read": 5}))
    last = built.messages[-1].content or ""
    assert last.endswith("</agent_status>")
    assert "5/5 (none left)" in last
    assert built.carry == Carry()
    assert built.manifest.status_bar is not None
    assert "calls_left" in built.manifest.status_bar.answers


def test_a_bar_that_stays_is_shown_again_where_it_was_and_only_news_adds_another() -> None:
    first = packet(TURNS[:2], APPEND)
    again = packet(TURNS[:2], APPEND, first.carry)
    assert again.messages == first.messages
    later = packet(TURNS, APPEND, again.carry)
    assert len(later.carry.bars) == 2
    assert later.messages[: len(first.messages)] == first.messages
    assert sum("<agent_status>" in text for text in contents(later)) == 2


def test_two_sources_of_bars_are_refused() -> None:
    bar = ContextItem(id="mine", payload=StatusBar(text="x"))
    with pytest.raises(UsageError, match="brings one too, mine"):
        packet(TURNS, REPLACE, candidates=(bar,))


@pytest.mark.parametrize("policy", [MASKING, REPLACE, APPEND])
def test_a_replay_finds_everything_that_was_stored(policy: ContextPolicy) -> None:
    carry = packet(TURNS[:4], policy).carry
    asked = request(TURNS, carry)
    built = assemble(asked, policy, FixedCounter())
    found = replay(built.manifest, request=asked, policy=policy, renderer=FixedCounter())
    assert found.verdict is Verdict.EXACT, found


CONTENTS = st.one_of(st.sampled_from(["same " * 20, "error", ""]), st.text(max_size=200))
RUNS = st.lists(st.one_of(st.just(None), CONTENTS), min_size=1, max_size=8).map(
    lambda parts: [UserTurn(text=f"u{n}") if part is None else step(n, part) for n, part in enumerate(parts)]
)


@given(RUNS)
@INVARIANT
def test_bars_that_stay_never_rewrite_what_was_sent(turns: list[Turn]) -> None:
    carry, sent = Carry(), []
    for end in range(1, len(turns) + 1):
        built = packet(turns[:end], APPEND, carry)
        carry = built.carry
        sent.append(contents(built))
    for before, after in pairwise(sent):
        # A bar in the tail of a message extends it; all before that message stays.
        assert after[: len(before) - 1] == before[:-1]
        assert after[len(before) - 1].startswith(before[-1])


@given(RUNS, st.integers(0, 60))
@INVARIANT
def test_a_masked_result_is_masked_for_ever_in_the_same_words(turns: list[Turn], threshold: int) -> None:
    policy = ContextPolicy(masking=MaskingLimits(threshold=threshold))
    carry = Carry()
    for end in range(1, len(turns) + 1):
        built = packet(turns[:end], policy, carry)
        assert carry.masked.items() <= built.carry.masked.items()
        carry = built.carry
