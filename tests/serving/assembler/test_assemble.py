"""The invariants of `assemble`, over generated requests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.assembler import (
    AssemblyRequest,
    Carrier,
    ContextItem,
    ContextPolicy,
    DropReason,
    Evidence,
    Example,
    FixedCounter,
    HandOff,
    Instruction,
    Layer,
    Memory,
    Message,
    MissingReason,
    MissingSource,
    Note,
    OpenQuestion,
    PackerName,
    Packet,
    PacketSpan,
    Rendered,
    RendererIdentity,
    RequestContext,
    Scope,
    StatusBar,
    SuffixPosition,
    TaskStateText,
    Terms,
    ToolOrder,
    ToolSpec,
    UserTurn,
    assemble,
    history_items,
    leaves,
    tool_items,
)
from serving.assembler.packet import MessagePath
from serving.assembler.renderer import AddedToken, TokenSpan
from serving.errors import LabError

CONTEXT = RequestContext(tenant="t1", actor="u1", now="2026-10-02T00:00:00Z")
TERMS = st.builds(
    Terms,
    relevance=st.sampled_from([0.0, 0.4, 0.9, 1.0]),
    freshness=st.sampled_from([0.5, 1.0]),
    redundancy=st.sampled_from([0.0, 0.3]),
)
PAYLOADS = st.one_of(
    st.builds(Instruction, text=st.text(min_size=1, max_size=30)),
    st.builds(Evidence, text=st.text(min_size=1, max_size=80)),
    st.builds(
        Memory,
        text=st.text(min_size=1, max_size=20),
        subject=st.sampled_from(["u1", "u2"]),
        purpose=st.sampled_from(["assist", "billing"]),
        source=st.sampled_from(["user_stated", "model_inferred", "unknown"]),
    ),
    st.builds(Note, text=st.just("a note")),
    st.builds(OpenQuestion, text=st.just("unknown role")),
    st.builds(TaskStateText, text=st.just("step 2 of 3")),
    st.builds(StatusBar, text=st.just("calls: 1/3")),
    st.just(Example(messages=(Message(role="user", content="q"), Message(role="assistant", content="a")))),
)


@st.composite
def candidates(draw: st.DrawFn) -> list[ContextItem]:
    return [
        ContextItem(
            id=f"item-{index}",
            payload=draw(PAYLOADS),
            scope=Scope(tenant=draw(st.sampled_from(["t1", "t1", "t2", "t11"]))),
            tokens=draw(st.one_of(st.none(), st.integers(0, 40))),
            terms=draw(TERMS),
            required=draw(st.integers(0, 4)) == 0,
            order=draw(st.integers(0, 1)),
            supersedes=(f"item-{index - 1}",) if index and draw(st.integers(0, 3)) == 0 else (),
        )
        for index in range(draw(st.integers(0, 8)))
    ]


POLICIES = st.builds(
    ContextPolicy,
    layer_order=st.permutations(list(Layer)).map(tuple),
    packer=st.sampled_from(PackerName),
    suffix_position=st.sampled_from(SuffixPosition),
    tool_order=st.sampled_from(ToolOrder),
)
TOOLS = tool_items([ToolSpec(name=name, description="d", parameters={}) for name in ("b", "a", "c")])


def request_of(items: Sequence[ContextItem], tools: Sequence[ContextItem], window: int) -> AssemblyRequest:
    return AssemblyRequest(
        context=CONTEXT,
        candidates=tuple(items),
        history=history_items([UserTurn(text="why?")]),
        tools=tuple(tools),
        window=window,
        max_output=20,
    )


class Merging:
    """A renderer whose counts do not add up: neighbours share tokens, and framing grows with the square."""

    def __init__(self) -> None:
        self._plain = FixedCounter(framing_per_message=3)
        self.calls = 0

    @property
    def identity(self) -> RendererIdentity:
        return self._plain.identity

    @property
    def added_tokens(self) -> tuple[AddedToken, ...]:
        return ()

    @property
    def carrier(self) -> Carrier:
        return self._plain.carrier

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], spans: Sequence[PacketSpan] = ()
    ) -> Rendered:
        self.calls += 1
        plain = self._plain.render(messages, tools, spans)
        owners = [span.item_id for span in plain.spans]
        out: list[TokenSpan] = []
        for span in plain.spans:
            start = out[-1].end if out else 0
            out.append(
                TokenSpan(start, start + max(0, span.end - span.start - len(owners) % 3), span.item_id)
            )
        end = out[-1].end if out else 0
        framing = len(owners) ** 2 // 4
        spans_out = (*out, TokenSpan(end, end + framing, "framing"))
        return Rendered(tuple(range(end + framing)), plain.text, spans_out)


@given(candidates(), POLICIES, st.integers(40, 400), st.data())
def test_the_order_of_candidates_and_tools_changes_no_byte(
    items: list[ContextItem], policy: ContextPolicy, window: int, data: st.DataObject
) -> None:
    counter = FixedCounter.of(items)
    first = assemble(request_of(items, TOOLS, window), policy, counter)
    shuffled = request_of(data.draw(st.permutations(items)), data.draw(st.permutations(list(TOOLS))), window)
    assert assemble(shuffled, policy, counter).model_dump_json() == first.model_dump_json()


@given(candidates(), POLICIES, st.integers(40, 400), st.booleans())
def test_what_is_rendered_never_exceeds_the_budget_and_the_parts_add_up(
    items: list[ContextItem], policy: ContextPolicy, window: int, merging: bool
) -> None:
    renderer = Merging() if merging else FixedCounter.of(items)
    request = request_of(items, TOOLS, window)
    outcome = assemble(request, policy, renderer)
    use = outcome.manifest.budget
    assert use.used == sum(item.tokens for item in outcome.manifest.selected) + use.framing
    assert sum(outcome.manifest.tokens_by_layer.values()) == use.used - use.framing
    dropped = [item.id for item in outcome.manifest.dropped]
    assert dropped == sorted(dropped)
    if isinstance(outcome, Packet):
        rendered = renderer.render(outcome.messages, outcome.tools, outcome.spans)
        assert len(rendered.token_ids) == use.used <= request.budget
    else:
        assert outcome.shortfall == outcome.needed - request.budget > 0
        assert all(item.required for item in outcome.manifest.selected)


@given(candidates(), POLICIES, st.integers(40, 400))
def test_required_items_are_all_present_in_packet_and_hand_off_alike(
    items: list[ContextItem], policy: ContextPolicy, window: int
) -> None:
    outcome = assemble(request_of(items, TOOLS, window), policy, FixedCounter.of(items))
    lacking = {item.id for item in outcome.manifest.dropped if item.reason is DropReason.NO_ROOM}
    assert not lacking & {item.id for item in items if item.is_required}
    assert {"turn-000", "tool:a", "tool:b", "tool:c"} <= {item.id for item in outcome.manifest.selected}


@given(candidates(), POLICIES, st.integers(40, 400))
def test_an_item_out_of_scope_leaves_no_trace(
    items: list[ContextItem], policy: ContextPolicy, window: int
) -> None:
    def visible(item: ContextItem) -> bool:
        of_other = isinstance(item.payload, Memory) and item.payload.subject != "u1"
        return item.scope.tenant == "t1" and not of_other

    counter = FixedCounter.of(items)
    with_hidden = assemble(request_of(items, TOOLS, window), policy, counter)
    without = assemble(request_of([item for item in items if visible(item)], TOOLS, window), policy, counter)
    assert with_hidden.model_dump_json() == without.model_dump_json()


@given(candidates(), POLICIES)
def test_assembling_changes_no_argument(items: list[ContextItem], policy: ContextPolicy) -> None:
    request = request_of(items, TOOLS, 200)
    before = request.model_dump_json()
    assemble(request, policy, FixedCounter.of(items))
    assert request.model_dump_json() == before


@given(candidates(), POLICIES)
def test_there_is_one_system_message_at_most_and_it_is_first(
    items: list[ContextItem], policy: ContextPolicy
) -> None:
    outcome = assemble(request_of(items, TOOLS, 4_000), policy, FixedCounter.of(items))
    assert isinstance(outcome, Packet)
    roles = [message.role for message in outcome.messages]
    assert "system" not in roles[1:]


@given(candidates(), POLICIES)
def test_spans_of_one_leaf_stay_inside_it_and_never_overlap(
    items: list[ContextItem], policy: ContextPolicy
) -> None:
    outcome = assemble(request_of(items, TOOLS, 4_000), policy, FixedCounter())
    assert isinstance(outcome, Packet)
    texts = dict(leaves(outcome.messages, outcome.tools))
    reached: dict[MessagePath, int] = {}
    for span in outcome.spans:
        if span.path[0] == "tools":
            continue
        end = len(texts[span.path]) if span.end is None else span.end
        assert reached.get(span.path, 0) <= span.start < end <= len(texts[span.path])
        reached[span.path] = end


@given(candidates(), st.integers(40, 400))
def test_the_search_for_a_fit_ends_after_few_renderings(items: list[ContextItem], window: int) -> None:
    renderer = Merging()
    outcome = assemble(request_of(items, TOOLS, window), ContextPolicy(), renderer)
    assert renderer.calls == outcome.manifest.budget.renders <= 8 + len(items) + 1


def test_a_wrong_first_estimate_is_corrected_by_the_rendering() -> None:
    """Each item is said to cost 400 and costs 100, so trust in the estimate would leave half of them out."""
    items = [
        ContextItem(id=f"e{index}", payload=Evidence(text="x"), scope=Scope(tenant="t1"), tokens=400)
        for index in range(8)
    ]
    counter = FixedCounter({item.id: 100 for item in items} | {"turn-000": 1})
    packet = assemble(request_of(items, (), 1_000), ContextPolicy(), counter)
    assert isinstance(packet, Packet)
    assert packet.manifest.dropped == ()


def test_an_estimate_that_is_too_low_never_overfills_the_window() -> None:
    items = [
        ContextItem(id=f"e{index}", payload=Evidence(text="x"), scope=Scope(tenant="t1"), tokens=1)
        for index in range(8)
    ]
    counter = FixedCounter({item.id: 300 for item in items} | {"turn-000": 1})
    packet = assemble(request_of(items, (), 1_000), ContextPolicy(), counter)
    assert isinstance(packet, Packet)
    assert packet.manifest.budget.used == 901
    assert [item.tokens for item in packet.manifest.dropped] == [300] * 5


def test_a_message_larger_than_the_window_ends_in_a_hand_off() -> None:
    outcome = assemble(request_of([], (), 30), ContextPolicy(), FixedCounter({"turn-000": 10_000}))
    assert isinstance(outcome, HandOff)
    assert (outcome.needed, outcome.shortfall) == (10_000, 9_990)
    assert outcome.manifest.budget.renders == 1


def test_a_missing_optional_source_is_named_in_the_manifest() -> None:
    gap = MissingSource(layer=Layer.KNOWLEDGE, source="memory", reason=MissingReason.TIMED_OUT)
    request = request_of([], (), 1_000).model_copy(update={"missing": (gap,)})
    packet = assemble(request, ContextPolicy(), FixedCounter())
    assert [(gap.layer, gap.source, gap.reason) for gap in packet.manifest.missing] == [
        (Layer.KNOWLEDGE, "memory", "timed_out")
    ]


def test_a_renderer_whose_spans_leave_a_token_out_is_refused() -> None:
    class Leaky(Merging):
        def render(
            self, messages: Sequence[Message], tools: Sequence[ToolSpec], spans: Sequence[PacketSpan] = ()
        ) -> Rendered:
            whole = super().render(messages, tools, spans)
            return Rendered((*whole.token_ids, 7), whole.text, whole.spans)

    with pytest.raises(LabError, match="must cover tokens 0 to"):
        assemble(request_of([], TOOLS, 1_000), ContextPolicy(), Leaky())


_IN_ANOTHER_PROCESS = """
from serving.assembler import *
scope = Scope(tenant="t1", readers={"u1", "x"})
items = tuple(ContextItem(id=f"e{n}", payload=Evidence(text=str(n)), scope=scope) for n in range(30))
context = RequestContext(tenant="t1", actor="u1", groups={"a", "b"}, now="2026-10-02")
request = AssemblyRequest(context=context, candidates=items, window=300, max_output=10)
print(assemble(request, ContextPolicy(), FixedCounter()).model_dump_json())
"""


def test_another_process_with_another_hash_seed_builds_the_same_bytes() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _IN_ANOTHER_PROCESS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
