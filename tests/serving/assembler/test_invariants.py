"""Every invariant of the specification, sections 2 to 4 and 7, over requests of every shape."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from serving.assembler import (
    AddedToken,
    AssemblyRequest,
    BarMode,
    BarPolicy,
    ContextManifest,
    ContextPolicy,
    DropReason,
    FixedCounter,
    HandOff,
    Kind,
    Memory,
    Packet,
    ReasoningEcho,
    Renderer,
    ToolContract,
    ToolStep,
    Verdict,
    assemble,
    leaves,
    replay,
)
from serving.assembler.gates import in_scope
from serving.assembler.payloads import pairing_problem
from serving.chat import ChatRenderer
from serving.errors import UsageError
from tests.support.examples import INVARIANT
from tests.support.requests import CANARY, MARKS, POLICIES, requests
from tests.support.tiny_model import write_tiny_folder


class Marked(FixedCounter):
    """Counts as given, and knows the added tokens of a Qwen model."""

    @property
    def added_tokens(self) -> tuple[AddedToken, ...]:
        return tuple(AddedToken(mark, special="|" in mark) for mark in MARKS if "agent" not in mark)


COUNTER = Marked(framing_per_message=3)


@pytest.fixture(scope="module", params=["qwen3", "qwen2_5"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real template and tokenizer, whose counts do not add up over items."""
    return write_tiny_folder(tmp_path_factory.mktemp(request.param), request.param)


def built(request: AssemblyRequest, policy: ContextPolicy, renderer: Renderer = COUNTER) -> Packet | HandOff:
    """What `assemble` makes of it; a request that the assembler refuses is no example."""
    try:
        return assemble(request, policy, renderer)
    except UsageError:
        assume(False)
        raise AssertionError("not reached") from None


@given(requests(), POLICIES, st.data())
@INVARIANT
def test_permuted_inputs_give_the_same_bytes(
    request: AssemblyRequest, policy: ContextPolicy, data: st.DataObject
) -> None:
    shuffled = request.model_copy(
        update={
            "candidates": tuple(data.draw(st.permutations(request.candidates))),
            "tools": tuple(data.draw(st.permutations(request.tools))),
        }
    )
    assert built(shuffled, policy).model_dump_json() == built(request, policy).model_dump_json()


def test_the_budget_is_never_exceeded_on_rendered_ids(folder: Path) -> None:
    real, fresh = ChatRenderer(folder), ChatRenderer(folder)

    @given(requests(), POLICIES)
    @INVARIANT
    def holds(request: AssemblyRequest, policy: ContextPolicy) -> None:
        outcome = built(request, policy, real)
        use = outcome.manifest.budget
        assert use.budget == request.window - request.max_output - request.overhead
        assert sum(item.tokens for item in outcome.manifest.selected) + use.framing == use.used
        if isinstance(outcome, Packet):
            again = fresh.render(outcome.messages, outcome.tools, outcome.spans)
            assert len(again.token_ids) == use.used <= use.budget
        else:
            assert outcome.needed == use.used > use.budget
            assert outcome.shortfall == use.used - use.budget

    holds()


def every_required_item_is_in_the_packet_or_there_is_a_hand_off(
    request: AssemblyRequest, outcome: Packet | HandOff
) -> None:
    reasons = {item.id: item.reason for item in outcome.manifest.dropped}
    room = {DropReason.NO_ROOM, DropReason.UTILITY_NOT_POSITIVE}
    seen = [item for item in (*request.candidates, *request.history) if in_scope(item, request.context)]
    history = {item.id for item in request.history}
    for item in seen:
        if item.is_required or item.id in history:
            assert reasons.get(item.id) not in room
            assert item.id in reasons or item.id in {kept.id for kept in outcome.manifest.selected}
    if isinstance(outcome, HandOff):
        assert all(item.required for item in outcome.manifest.selected)


@given(requests(), POLICIES)
@INVARIANT
def test_an_id_out_of_scope_is_in_no_output_of_any_kind(
    request: AssemblyRequest, policy: ContextPolicy
) -> None:
    def visible(items: Sequence) -> tuple:
        return tuple(item for item in items if not item.id.startswith(CANARY))

    cleaned = request.model_copy(
        update={"candidates": visible(request.candidates), "history": visible(request.history)}
    )
    # Neither the bytes nor a refusal may depend on what the reader must not know of.
    assert _said(request, policy) == _said(cleaned, policy)


def _said(request: AssemblyRequest, policy: ContextPolicy) -> str:
    try:
        outcome = assemble(request, policy, COUNTER)
    except UsageError as error:
        assert CANARY not in str(error)
        return str(error)
    written = outcome.model_dump_json()
    named = {item.id for item in (*outcome.manifest.selected, *outcome.manifest.dropped)}
    assert not any(item_id.startswith(CANARY) for item_id in named)
    assert f"{CANARY}-source" not in written
    return written


def there_is_one_system_message_at_most_and_it_comes_first(
    request: AssemblyRequest, outcome: Packet | HandOff
) -> None:
    if isinstance(outcome, HandOff):
        return
    roles = [message.role for message in outcome.messages]
    assert not {"system", "developer"} & set(roles[1:])


def calls_and_results_are_whole_in_both_directions(
    request: AssemblyRequest, outcome: Packet | HandOff
) -> None:
    if isinstance(outcome, HandOff):
        return
    assert pairing_problem(outcome.messages) is None
    opened = [call.id for message in outcome.messages for call in message.tool_calls]
    closed = [message.tool_call_id for message in outcome.messages if message.role == "tool"]
    assert opened == closed
    logged = [
        call.id
        for item in request.history
        if isinstance(item.payload, ToolStep) and in_scope(item, request.context)
        for call in item.payload.calls
    ]
    assert opened == logged
    assert {call.call_id for call in outcome.manifest.open_calls} == {
        call_id
        for item in request.history
        if isinstance(item.payload, ToolStep) and in_scope(item, request.context)
        for call_id in item.payload.open_calls
    }


_TAG = re.compile(r"<(/?)(\w+):([0-9a-f]{8})[ >]")


def every_fence_is_opened_and_closed_once_and_in_order(
    request: AssemblyRequest, outcome: Packet | HandOff
) -> None:
    if isinstance(outcome, HandOff):
        return
    for message in outcome.messages:
        stack: list[tuple[str, str]] = []
        for closing, tag, nonce in _TAG.findall(message.content or ""):
            if nonce == "00000000":
                continue  # what the generator forges; it may stand anywhere and means nothing
            if closing:
                assert stack.pop() == (tag, nonce)
            else:
                stack.append((tag, nonce))
        assert not stack
    text = "".join(message.content or "" for message in outcome.messages)
    opened, closed = text.count("<agent_status>"), text.count("</agent_status>")
    bars = sum(item.kind.value == "status_bar" for item in outcome.manifest.selected)
    assert opened == closed == bars


@given(requests(hidden=False, window=4_000, open_calls=False), POLICIES, st.integers(0, 6))
@INVARIANT
def test_what_was_sent_of_the_log_is_never_rewritten(
    request: AssemblyRequest, any_policy: ContextPolicy, cut: int
) -> None:
    """Without a dynamic suffix request n+1 extends request n: masks only where they were planned already."""
    policy = any_policy.model_copy(
        update={
            "reasoning": ReasoningEcho.ALL,
            "status_bar": any_policy.status_bar and BarPolicy(mode=BarMode.APPEND),
        }
    )
    quiet = request.model_copy(
        update={"candidates": tuple(item for item in request.candidates if item.kind is Kind.INSTRUCTION)}
    )
    first = built(quiet.model_copy(update={"history": quiet.history[:cut]}), policy)
    if isinstance(first, HandOff):
        return
    second = built(quiet.model_copy(update={"carry": first.carry}), policy)
    if isinstance(second, HandOff) or second.carry.masked != first.carry.masked:
        return  # the policy decided to rewrite: masking is the one lawful way
    if first.messages:
        kept, last = len(first.messages) - 1, first.messages[-1].content or ""
        assert second.messages[:kept] == first.messages[:kept]
        assert (second.messages[kept].content or "").startswith(last)


def no_mark_is_live_in_what_nobody_of_the_deployment_wrote(
    request: AssemblyRequest, outcome: Packet | HandOff
) -> None:
    if isinstance(outcome, HandOff):
        return
    for message in outcome.messages:
        if message.role in ("user", "tool"):
            text = message.content or ""
            # Carriers and bars are the assembler's own; skill bodies are the deployment's.
            assert not any(mark in text for mark in ("<|im_end|>", "<|im_start|>", "<think>", "</tool_call>"))
        if message.role == "assistant":
            assert all("<|im_" not in text for _, text in leaves([message]))


@given(requests(), POLICIES)
@INVARIANT
def test_a_stored_manifest_replays_to_the_byte(request: AssemblyRequest, policy: ContextPolicy) -> None:
    outcome = built(request, policy)
    found = replay(
        ContextManifest.model_validate_json(outcome.manifest.model_dump_json()),
        request=AssemblyRequest.model_validate_json(request.model_dump_json()),
        policy=ContextPolicy.model_validate_json(policy.model_dump_json()),
        renderer=Marked(framing_per_message=3),
    )
    assert found.verdict is Verdict.EXACT, found.reasons


def the_gates_answer_in_their_order(request: AssemblyRequest, outcome: Packet | HandOff) -> None:
    """Of several reasons to stay out, the one of the earliest gate is recorded; later gates see the rest."""
    reasons = {item.id: item.reason for item in outcome.manifest.dropped}
    now = request.context.now
    standing: list = []
    for item in sorted(request.candidates, key=lambda item: item.id):
        if not in_scope(item, request.context):
            assert item.id not in reasons
            continue
        memory = item.payload if isinstance(item.payload, Memory) else None
        gates = (
            (DropReason.MEMORY_PURPOSE, memory is not None and memory.purpose != request.context.purpose),
            (
                DropReason.MEMORY_EXPIRED,
                memory is not None and memory.expires_at is not None and memory.expires_at <= now,
            ),
            (DropReason.MEMORY_SOURCE, memory is not None and memory.source == "unknown"),
            (DropReason.CONDITION_FALSE, item.condition is not None and not item.condition.holds),
        )
        first = next((reason for reason, fails in gates if fails), None)
        if first is not None:
            assert reasons[item.id] is first
        else:
            standing.append(item)
    replaced = {target for item in standing for target in item.supersedes}
    for item in standing:
        assert (reasons.get(item.id) is DropReason.SUPERSEDED) == (item.id in replaced)
    for item in request.tools:
        assert isinstance(item.payload, ToolContract)
        assert (item.id in reasons) == (not _offered(item.payload, request))


def _offered(contract: ToolContract, request: AssemblyRequest) -> bool:
    limits, allowed = request.state.limits, request.state.allowed_tools
    if limits.attempts_left() == 0 or limits.seconds_left(request.context.now) == 0:
        return False
    return allowed is None or contract.spec.name in allowed


def every_item_in_scope_is_accounted_for_once(request: AssemblyRequest, outcome: Packet | HandOff) -> None:
    named = [item.id for item in (*outcome.manifest.selected, *outcome.manifest.dropped)]
    assert len(named) == len(set(named))
    everything = (*request.candidates, *request.history, *request.tools)
    assert {item.id for item in everything if in_scope(item, request.context)} <= set(named)


def limits_are_those_of_the_task_state(request: AssemblyRequest, outcome: Packet | HandOff) -> None:
    assert outcome.manifest.limits.attempts == request.state.limits.attempts_left()
    assert outcome.manifest.limits.seconds == request.state.limits.seconds_left(request.context.now)


OF_EVERY_OUTCOME = (
    every_required_item_is_in_the_packet_or_there_is_a_hand_off,
    there_is_one_system_message_at_most_and_it_comes_first,
    calls_and_results_are_whole_in_both_directions,
    every_fence_is_opened_and_closed_once_and_in_order,
    no_mark_is_live_in_what_nobody_of_the_deployment_wrote,
    the_gates_answer_in_their_order,
    every_item_in_scope_is_accounted_for_once,
    limits_are_those_of_the_task_state,
)
"""Checked together: making a request costs more than all of them."""


@given(requests(), POLICIES)
@INVARIANT
def test_every_outcome_keeps_the_invariants_and_no_input_is_changed(
    request: AssemblyRequest, policy: ContextPolicy
) -> None:
    before = (request.model_dump_json(), policy.model_dump_json())
    outcome = built(request, policy)
    for check in OF_EVERY_OUTCOME:
        check(request, outcome)
    assert (request.model_dump_json(), policy.model_dump_json()) == before
