"""Plans come with packets, their results go back with the carry, and the whole log stays the source."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from serving.assembler import (
    AssemblyRequest,
    AssistantTurn,
    Carry,
    ContextItem,
    ContextPolicy,
    DropReason,
    FixedCounter,
    HandOff,
    Kind,
    Packet,
    RequestContext,
    Scope,
    ToolCall,
    ToolResult,
    ToolStep,
    UserTurn,
    Verdict,
    assemble,
    replay,
)
from serving.assembler.compaction import (
    Compaction,
    CompactionFailure,
    CompactionPlan,
    CompactionPolicy,
    Reach,
    Strategy,
    call_failed,
    finish,
)
from serving.assembler.compaction.extractive import extractive
from serving.assembler.payloads import pairing_problem
from serving.assembler.prepare import estimated_tokens
from serving.errors import UsageError
from tests.support.examples import INVARIANT

CONTEXT = RequestContext(tenant="t1", actor="u1", now="2026-10-02T00:00:00Z")
EVERYONE = Scope()
STRATEGIES = [strategy for strategy in Strategy if strategy is not Strategy.NONE]


def policy(strategy: Strategy = Strategy.COMBINED, **fields: object) -> ContextPolicy:
    return ContextPolicy(
        compaction=CompactionPolicy(strategy=strategy, threshold=0.5, down_to=0.3, target_tokens=64, **fields)
    )


def task(number: int, scope: Scope = EVERYONE) -> list[ContextItem]:
    """One finished task: a question, two long results, an answer."""
    calls = [ToolCall(id=f"c{number}_{n}", name="read", arguments="{}") for n in range(2)]
    text = f"File f{number}.txt has {number + 3} errors. " + "The rest of the log says nothing new. " * 12
    payloads = [
        UserTurn(text=f"Count the errors of f{number}.txt"),
        *(
            ToolStep(calls=(call,), results=(ToolResult(call_id=call.id, content=f"{text} ({call.id})"),))
            for call in calls
        ),
        AssistantTurn(text=f"There are {number + 3} errors."),
    ]
    return [
        ContextItem(id=f"task{number}-{n}", payload=payload, scope=scope)
        for n, payload in enumerate(payloads)
    ]


def request(log: Sequence[ContextItem], carry: Carry | None = None, window: int = 900) -> AssemblyRequest:
    return AssemblyRequest(
        context=CONTEXT, history=tuple(log), window=window, max_output=50, carry=carry or Carry()
    )


def run(plan: CompactionPlan) -> Compaction | CompactionFailure:
    return finish(plan, [extractive(one) for one in plan.tasks], estimated_tokens)


LOG = [*task(0), *task(1), *task(2)]


def test_a_policy_without_compaction_asks_for_none() -> None:
    outcome = assemble(request(LOG), ContextPolicy(), FixedCounter())
    assert outcome.compaction is None
    assert outcome.manifest.compaction is None


def test_a_packet_over_the_threshold_brings_its_plan_and_the_manifest_names_it() -> None:
    outcome = assemble(request(LOG), policy(), FixedCounter())
    assert outcome.compaction is not None
    assert outcome.manifest.compaction is not None
    assert outcome.manifest.compaction.plan_id == outcome.compaction.id
    small = assemble(request(LOG[:4], window=4_000), policy(), FixedCounter())
    assert small.compaction is None
    assert small.manifest.compaction is not None
    assert small.manifest.compaction.reason == "not_over_threshold"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_hand_off_turns_into_a_packet_once_its_plan_was_run(strategy: Strategy) -> None:
    before = assemble(request(LOG, window=700), policy(strategy), FixedCounter())
    assert isinstance(before, HandOff)
    assert before.compaction is not None
    made = run(before.compaction)
    assert isinstance(made, Compaction), made
    asked = request(LOG, Carry().with_compaction(made), window=700)
    after = assemble(asked, policy(strategy), FixedCounter())
    assert after.manifest.budget.used < before.manifest.budget.used
    reasons = {item.id: item.reason for item in after.manifest.dropped}
    assert {reasons[covered.id] for covered in made.covers} == {DropReason.COMPACTED}
    summaries = [item for item in after.manifest.selected if item.kind is Kind.SUMMARY]
    assert {item.id for item in summaries} == {item.id for item in made.items}
    assert after.manifest.compactions[0].tokens_after < after.manifest.compactions[0].tokens_before
    again = replay(after.manifest, request=asked, policy=policy(strategy), renderer=FixedCounter())
    assert again.verdict is Verdict.EXACT, again


def test_a_failure_goes_with_the_carry_and_opens_the_breaker_in_the_end() -> None:
    carry, plans = Carry(), 0
    for _ in range(6):
        outcome = assemble(request(LOG, carry), policy(max_failures=3), FixedCounter())
        if outcome.compaction is None:
            break
        plans += 1
        carry = carry.with_compaction(call_failed(outcome.compaction, "the server is gone"))
    assert plans == 3
    assert outcome.manifest.compaction is not None
    assert outcome.manifest.compaction.reason == "breaker_open"


def test_a_reader_who_may_not_see_a_source_does_not_see_its_summary() -> None:
    private = Scope(tenant="t1", readers=frozenset({"u1"}))
    log = [*task(0, private), *task(1, private), *task(2)]
    plan = assemble(request(log), policy(), FixedCounter()).compaction
    assert plan is not None
    made = run(plan)
    assert isinstance(made, Compaction)
    asked = request(log, Carry().with_compaction(made)).model_copy(
        update={"context": CONTEXT.model_copy(update={"actor": "u2"})}
    )
    outcome = assemble(asked, policy(), FixedCounter())
    written = outcome.model_dump_json(exclude={"carry"})
    assert made.items[0].id not in written
    assert "f0.txt" not in written
    assert "f1.txt" not in written


def test_a_log_that_was_edited_after_the_compaction_is_refused() -> None:
    plan = assemble(request(LOG), policy(), FixedCounter()).compaction
    assert plan is not None
    made = run(plan)
    assert isinstance(made, Compaction)
    covered = made.covers[0].id
    edited = [
        item if item.id != covered else ContextItem(id=covered, payload=UserTurn(text="something else"))
        for item in LOG
    ]
    with pytest.raises(UsageError, match="compact again"):
        assemble(request(edited, Carry().with_compaction(made)), policy(), FixedCounter())


@given(
    st.sampled_from(STRATEGIES),
    st.sampled_from(list(Reach)),
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
    st.integers(400, 1_600),
)
@INVARIANT
def test_over_many_cycles_the_required_stays_and_every_compaction_shrinks_the_prompt(
    strategy: Strategy, reach: Reach, kinds: list[int], window: int
) -> None:
    chosen = policy(strategy, reach=reach)
    log: list[ContextItem] = []
    carry = Carry()
    for number, kind in enumerate(kinds):
        log = [*log, *task(number)]
        if kind == 0:
            call = ToolCall(id=f"open{number}", name="pay", arguments="{}")
            log = [*log, ContextItem(id=f"open-{number}", payload=ToolStep(calls=(call,)))]
        for _ in range(4):
            outcome = assemble(request(log, carry, window), chosen, FixedCounter())
            plan = outcome.compaction
            if plan is None:
                break
            result = run(plan)
            later = assemble(request(log, carry.with_compaction(result), window), chosen, FixedCounter())
            if isinstance(result, Compaction):
                assert later.manifest.budget.used < outcome.manifest.budget.used
            carry = carry.with_compaction(result)
        else:
            raise AssertionError("compaction neither shrinks nor stops")
        outcome = assemble(request(log, carry, window), chosen, FixedCounter())
        kept = {item.id for item in outcome.manifest.selected}
        last_user = max(index for index, item in enumerate(log) if item.kind is Kind.USER_TURN)
        assert log[last_user].id in kept
        assert {
            item.id for item in log if isinstance(item.payload, ToolStep) and item.payload.open_calls
        } <= kept
        if isinstance(outcome, Packet):
            assert pairing_problem(outcome.messages) is None
        stored = Carry.model_validate_json(carry.model_dump_json())
        again = assemble(request(log, stored, window), chosen, FixedCounter())
        assert again.model_dump_json() == outcome.model_dump_json()
    assume(log)
