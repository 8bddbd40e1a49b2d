"""A diff is empty exactly for equal manifests, says the same from both sides, and names what changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.assembler import (
    Aspect,
    AssemblyRequest,
    Carrier,
    Change,
    ContextItem,
    ContextManifest,
    ContextPolicy,
    Evidence,
    FixedCounter,
    Instruction,
    Layer,
    ManifestDiff,
    Memory,
    Message,
    MissingSource,
    Packet,
    PacketSpan,
    RequestContext,
    Retrieval,
    Scope,
    Section,
    SuffixPosition,
    Terms,
    ToolContract,
    ToolOrder,
    ToolSpec,
    UserTurn,
    assemble,
    diff,
    history_items,
    leaves,
)
from serving.assembler.manifest import (
    BarRecord,
    CacheKeys,
    CompactionRecord,
    CompactionVerdict,
    FaultRecord,
    InertMark,
    MaskingRecord,
    MaskRecord,
    MissingRecord,
    OpenCall,
    RedactionVerdict,
    RetrievalRecord,
    SensitiveItem,
)
from serving.errors import LabError, UsageError

CONTEXT = RequestContext(tenant="t1", actor="u1", now="2026-10-02T00:00:00Z")
HERE = Scope(tenant="t1")
RULE = ContextItem(id="rule", payload=Instruction(text="be brief"))
FACT = ContextItem(id="fact", payload=Evidence(text="the key is old"), scope=HERE, version="1")
MEMO = ContextItem(
    id="memo",
    payload=Memory(text="m", subject="u1", purpose="assist", source="user_stated"),
    scope=HERE,
)


def tool(name: str, authority: str = "read", description: str = "d", order: int = 0) -> ContextItem:
    spec = ToolSpec(name=name, description=description, parameters={})
    return ContextItem(id=f"tool:{name}", payload=ToolContract(spec=spec, authority=authority), order=order)


def packet(
    *candidates: ContextItem,
    tools: tuple[ContextItem, ...] = (),
    policy: ContextPolicy | None = None,
    window: int = 2000,
    text: str = "why?",
) -> Packet:
    request = AssemblyRequest(
        context=CONTEXT,
        candidates=candidates,
        tools=tools,
        history=history_items([UserTurn(text=text)]),
        window=window,
        max_output=20,
    )
    made = assemble(request, policy or ContextPolicy(), FixedCounter())
    assert isinstance(made, Packet)
    return made


def found(changed: ManifestDiff, section: Section) -> dict[tuple[str, Aspect], tuple[object, object]]:
    return {(c.subject, c.aspect): (c.before, c.after) for c in changed.changes if c.section is section}


BASE = packet(RULE, FACT, MEMO, tools=(tool("a"), tool("b")))


def test_equal_inputs_in_another_order_have_an_empty_diff() -> None:
    again = packet(MEMO, FACT, RULE, tools=(tool("b"), tool("a")))
    changed = diff(BASE, again)
    assert changed.is_empty
    assert changed.packets_compared
    assert changed.to_text() == "no difference"


def test_a_rule_that_came_and_one_that_went_are_named() -> None:
    other = ContextItem(id="rule-2", payload=Instruction(text="be exact"))
    rules = found(diff(BASE, packet(other, FACT, MEMO, tools=(tool("a"), tool("b")))), Section.RULES)
    assert rules == {
        ("rule", Aspect.STANDING): ("selected", None),
        ("rule-2", Aspect.STANDING): (None, "selected"),
    }


def test_new_evidence_text_of_a_new_revision_shows_both() -> None:
    newer = FACT.model_copy(
        update={"payload": Evidence(text="the key is new"), "version": "2", "terms": Terms(freshness=0.5)}
    )
    evidence = found(diff(BASE, packet(RULE, newer, MEMO, tools=(tool("a"), tool("b")))), Section.EVIDENCE)
    assert evidence["fact", Aspect.REVISION] == ("1", "2")
    assert evidence["fact", Aspect.FRESHNESS] == (1.0, 0.5)
    assert evidence["fact", Aspect.CONTENT][0] != evidence["fact", Aspect.CONTENT][1]
    assert ("fact", Aspect.STANDING) not in evidence


def test_evidence_that_lost_its_place_shows_the_reason() -> None:
    useless = FACT.model_copy(update={"terms": Terms(redundancy=1.0)})
    changed = diff(BASE, packet(RULE, useless, MEMO, tools=(tool("a"), tool("b"))))
    evidence = found(changed, Section.EVIDENCE)
    assert evidence["fact", Aspect.STANDING] == ("selected", "dropped")
    assert evidence["fact", Aspect.REASON] == (None, "utility_not_positive")
    assert ("fact", Aspect.TOKENS) not in evidence
    assert "reason none → utility_not_positive" in changed.to_text()


def test_a_tools_schema_and_authority_are_two_changes() -> None:
    tools = found(
        diff(BASE, packet(RULE, FACT, MEMO, tools=(tool("a", "write", "other"), tool("b")))), Section.TOOLS
    )
    assert tools["tool:a", Aspect.TOOL_AUTHORITY] == ("read", "write")
    assert ("tool:a", Aspect.TOOL_SCHEMA) in tools
    assert not any(subject == "tool:b" for subject, _ in tools)


def test_a_memory_that_became_a_guess_changes_its_standing() -> None:
    guess = MEMO.model_copy(
        update={"payload": Memory(text="m", subject="u1", purpose="assist", source="model_inferred")}
    )
    memory = found(diff(BASE, packet(RULE, FACT, guess, tools=(tool("a"), tool("b")))), Section.MEMORY)
    assert memory["memo", Aspect.MEMORY_STANDING] == ("fact", "hypothesis")


def test_another_window_is_a_change_of_the_budget_only() -> None:
    changed = diff(BASE, packet(RULE, FACT, MEMO, tools=(tool("a"), tool("b")), window=3000))
    assert {change.section for change in changed.changes} == {Section.BUDGET}
    assert found(changed, Section.BUDGET)["budget.window", Aspect.VALUE] == (2000, 3000)
    assert changed.first_byte is None


def test_the_order_of_tools_is_a_change_of_the_layout() -> None:
    declared = ContextPolicy(tool_order=ToolOrder.DECLARED)
    was = packet(tools=(tool("a", order=1), tool("b", order=2)), policy=declared)
    now = packet(tools=(tool("a", order=2), tool("b", order=1)), policy=declared)
    changed = diff(was, now)
    layout = found(changed, Section.LAYOUT)
    assert layout["tools", Aspect.ORDER] == (["tool:a", "tool:b"], ["tool:b", "tool:a"])
    assert changed.first_byte is not None
    assert changed.first_byte.path == ("tools", 0, "name")
    assert (changed.first_byte.before_item, changed.first_byte.after_item) == ("tool:a", "tool:b")


def test_two_policies_over_one_request_show_the_first_byte_and_token() -> None:
    other = ContextPolicy(name="other", suffix_position=SuffixPosition.BEFORE_TASK)
    tools = (tool("a"), tool("b"))
    moved = packet(RULE, FACT, MEMO, tools=tools, policy=other)
    counter = FixedCounter()
    rendered = tuple(counter.render(p.messages, p.tools, p.spans) for p in (BASE, moved))
    changed = diff(BASE, moved, rendered=(rendered[0], rendered[1]))
    assert changed.first_byte is not None
    assert changed.first_byte.path == ("messages", 1, "content")
    assert changed.first_byte.before_item == "turn-000"
    assert changed.first_token is not None
    shared = changed.first_token.token
    assert rendered[0].token_ids[:shared] == rendered[1].token_ids[:shared]
    assert rendered[0].token_ids[shared] != rendered[1].token_ids[shared]
    assert found(changed, Section.POLICY)["policy_name", Aspect.VALUE] == ("default", "other")


def test_the_first_byte_counts_utf8_and_stands_inside_the_changed_character() -> None:
    changed = diff(packet(text="añb"), packet(text="aöb"))
    assert changed.first_byte is not None
    assert changed.first_byte.byte == 2
    assert changed.first_byte.after_item == "turn-000"


def test_a_packet_that_goes_on_differs_where_the_other_ended() -> None:
    longer = BASE.model_copy(
        update={
            "messages": (*BASE.messages, Message(role="user", content="more")),
            "spans": (
                *BASE.spans,
                PacketSpan(path=("messages", len(BASE.messages), "content"), item_id="x"),
            ),
        }
    )
    first = diff(BASE, longer).first_byte
    assert first is not None
    assert first.path == ("messages", len(BASE.messages), "role")
    assert (first.before_item, first.after_item) == (None, "x")


def test_a_place_that_no_item_wrote_is_framing_and_an_ended_string_is_none() -> None:
    apart = ContextPolicy(carrier=Carrier.USER)
    first = diff(packet(FACT), packet(FACT, policy=apart)).first_byte
    assert first is not None
    assert first.path == ("messages", 0, "content")
    assert first.byte == len("why?")
    assert (first.before_item, first.after_item) == ("framing", None)
    assert str(first) == "first byte that differs: messages[0].content byte 4 (framing → end)"


def test_another_query_is_a_change_of_the_evidence_and_a_failed_source_one_of_what_is_missing() -> None:
    gaps = [MissingSource(layer="knowledge", source=name, reason="failed") for name in ("wiki", "memory")]
    asked = [
        AssemblyRequest(
            context=CONTEXT,
            window=90,
            max_output=9,
            retrieval=Retrieval(query_sha256=query),
            missing=tuple(missing),
        )
        for query, missing in (("q1", gaps), ("q2", gaps[:1]), ("q1", reversed(gaps)))
    ]
    one, two, turned = (assemble(request, ContextPolicy(), FixedCounter()).manifest for request in asked)
    changed = diff(one, two)
    assert found(changed, Section.EVIDENCE) == {("retrieval.query_sha256", Aspect.VALUE): ("q1", "q2")}
    assert found(changed, Section.MISSING) == {("knowledge/memory", Aspect.VALUE): (["failed"], None)}
    assert diff(one, turned).is_empty


def test_a_fault_that_came_and_faults_in_another_order_are_changes() -> None:
    clock, window = (FaultRecord(name=name, breaks=("static_head",)) for name in ("clock", "window"))
    none, one, both, turned = (
        BASE.manifest.model_copy(update={"faults": faults})
        for faults in ((), (clock,), (clock, window), (window, clock))
    )
    assert found(diff(none, one), Section.FAULTS) == {("clock", Aspect.VALUE): (None, [["static_head"]])}
    order = (["clock", "window"], ["window", "clock"])
    assert found(diff(both, turned), Section.FAULTS) == {("faults", Aspect.ORDER): order}


def test_the_lines_of_a_diff_stand_under_their_sections() -> None:
    text = diff(packet(RULE), packet(RULE, FACT)).to_text()
    assert "evidence:\n  + fact (selected)" in text
    assert text.index("evidence:") < text.index("budget:") < text.index("layout:")


def test_the_json_of_a_diff_reads_back() -> None:
    changed = diff(BASE, packet(RULE))
    assert ManifestDiff.model_validate_json(changed.model_dump_json()) == changed
    assert all(isinstance(change, Change) for change in changed.changes)


def test_what_is_no_manifest_is_refused() -> None:
    with pytest.raises(UsageError, match="a dict came"):
        diff({}, BASE)  # type: ignore[arg-type]


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, dict | list):
        for key, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(below, (*path, key))
    else:
        yield path, value


def _others(value: Any) -> list[Any]:
    """Other values of the same field, some of which it may refuse."""
    words = [
        "note",
        "evidence",
        "task",
        "knowledge",
        "superseded",
        "no_room",
        "2020-01-01T00:00:00Z",
        "other",
    ]
    if isinstance(value, bool):
        return [not value]
    if value == 1:
        return [0, 2, 1.5]
    if isinstance(value, int | float):
        return [value + 1, value / 2 + 0.25]
    return [word for word in (*words, 7, 1.5) if word != value]


SUMMARISED = CompactionRecord(
    id="c",
    strategy="combined",
    strategy_version="1",
    policy_version="1",
    summaries=("summary",),
    covers=("turn-000",),
    tokens_before=9,
    tokens_after=4,
    calls=2,
    prompt_tokens=30,
    output_tokens=5,
)
MASK = MaskRecord(
    owner="turn-001#c1",
    reason="repeated",
    content_sha256="a",
    text_sha256="b",
    tokens_before=9,
    tokens_after=4,
)


def test_no_field_of_a_manifest_can_change_unseen() -> None:
    useless = FACT.model_copy(update={"id": "useless", "terms": Terms(redundancy=1.0)})
    manifest = packet(RULE, FACT, MEMO, useless, tools=(tool("a"), tool("b"))).manifest
    manifest = manifest.model_copy(
        update={
            "faults": (FaultRecord(name="clock", breaks=("static_head",)),),
            "open_calls": (OpenCall(item_id="turn-000", call_id="c1"),),
            "missing": (MissingRecord(layer=Layer.KNOWLEDGE, source="wiki", reason="failed"),),
            "retrieval": RetrievalRecord(query_sha256="q", filters=(("lang", "en"),)),
            "cache_keys": CacheKeys(conditions=("beta",), distinct_prefixes=2),
            "redaction": RedactionVerdict(
                sensitive=(SensitiveItem(item_id="fact", kinds=("jwt",)),), taken_out=("email",)
            ),
            "masking": MaskingRecord(masks=(MASK,), tokens_before=9, tokens_after=4),
            "compactions": (SUMMARISED,),
            "compaction": CompactionVerdict(plan_id="p", reason="breaker_open"),
            "status_bar": BarRecord(item_id="status-bar", mode="replace", answers=("work_open",)),
            "inert_marks": (InertMark(item_id="fact", mark="<|im_end|>", count=2),),
        }
    )
    plain = manifest.model_dump(mode="json")
    seen: set[str] = set()
    for path, value in list(_leaves(plain)):
        for other in _others(value):
            changed = json.loads(json.dumps(plain))
            place = changed
            for part in path[:-1]:
                place = place[part]
            place[path[-1]] = other
            try:
                touched = ContextManifest.model_validate(changed)
            except LabError:
                continue
            if touched != manifest:
                seen.add(str(path[0]))
                assert not diff(manifest, touched).is_empty, path
    assert seen == plain.keys()


ITEMS = st.builds(
    ContextItem,
    id=st.sampled_from(["a", "b", "c", "d"]),
    payload=st.one_of(
        st.builds(Instruction, text=st.text(min_size=1, max_size=5)),
        st.builds(Evidence, text=st.text(min_size=1, max_size=20)),
        st.just(MEMO.payload),
    ),
    scope=st.just(HERE),
    version=st.sampled_from([None, "1", "2"]),
    terms=st.builds(Terms, relevance=st.sampled_from([0.0, 0.5, 1.0])),
)
PACKETS = st.builds(
    lambda items, text, tools: packet(*items, tools=tuple(map(tool, tools)), text=text),
    st.lists(ITEMS, max_size=4, unique_by=lambda item: item.id),
    st.text(max_size=8),
    st.sets(st.sampled_from(["x", "y", "z"])),
)


@given(PACKETS, PACKETS)
def test_the_diff_from_the_other_side_is_the_swapped_one(was: Packet, now: Packet) -> None:
    forth, back = diff(was, now), diff(now, was)
    assert back == forth.swapped()
    assert forth.is_empty == (was.manifest == now.manifest)
    assert (forth.first_byte is None) == ((was.messages, was.tools) == (now.messages, now.tools))


@given(PACKETS, PACKETS)
def test_before_the_first_byte_that_differs_all_strings_are_equal(was: Packet, now: Packet) -> None:
    first = diff(was, now).first_byte
    if first is None or first.path[0] == "tools":
        return
    old, new = (
        [(path, text) for path, text in leaves(p.messages) if path[1] < first.path[1]] for p in (was, now)
    )
    assert old == new
    assert was.tools == now.tools
