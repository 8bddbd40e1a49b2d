from __future__ import annotations

from typing import Any

import pytest

from serving.assembler import (
    AssemblyRequest,
    Classification,
    Condition,
    ContextItem,
    ContextPolicy,
    DropReason,
    Evidence,
    FixedCounter,
    Instruction,
    Kind,
    Layer,
    Memory,
    Note,
    Packet,
    RequestContext,
    RunLimits,
    Scope,
    TaskState,
    ToolSpec,
    Trust,
    assemble,
    tool_items,
)
from serving.assembler.gates import admit, in_scope

CONTEXT = RequestContext(
    tenant="test_user", actor="u1", groups={"support"}, now="2026-10-02", facets={"product": "3.2"}
)


def evidence(item_id: str = "e", **scope: Any) -> ContextItem:
    return ContextItem(
        id=item_id, payload=Evidence(text="x"), scope=Scope(**{"tenant": "test_user", **scope})
    )


def assembled(*items: ContextItem, **more: Any) -> Packet:
    request = AssemblyRequest(context=CONTEXT, candidates=items, window=10_000, max_output=10, **more)
    packet = assemble(request, ContextPolicy(), FixedCounter())
    assert isinstance(packet, Packet)
    return packet


@pytest.mark.parametrize(
    ("scope", "visible"),
    [
        ({}, True),
        ({"tenant": "test_user1"}, False),
        ({"tenant": "test"}, False),
        ({"tenant": "TEST_USER"}, False),
        ({"readers": {"u1"}}, True),
        ({"readers": {"support", "sales"}}, True),
        ({"readers": {"sales"}}, False),
        ({"readers": set()}, False),
        ({"classification": Classification.INTERNAL}, True),
        ({"classification": Classification.CONFIDENTIAL}, False),
        ({"applies_to": {"product": {"3.1", "3.2"}}}, True),
        ({"applies_to": {"product": {"3.1"}}}, False),
        ({"applies_to": {"region": {"eu"}}}, False),
        ({"effective_from": "2026-10-02"}, True),
        ({"effective_from": "2026-10-03"}, False),
        ({"effective_until": "2026-10-02"}, False),
        ({"effective_until": "2026-10-03"}, True),
        ({"lookup_failed": True}, False),
    ],
)
def test_scope_admits_exactly_what_the_reader_may_see(scope: dict[str, Any], visible: bool) -> None:
    item = evidence(**scope)
    assert in_scope(item, CONTEXT) is visible
    assert ('"e"' in assembled(item).model_dump_json()) is visible


def test_scope_comes_before_every_other_gate() -> None:
    """Hidden items that would be refused later, or supersede, or share an id, change nothing either."""
    hidden = [
        evidence("new", tenant="other").model_copy(update={"supersedes": ("old",), "required": True}),
        evidence("old", tenant="other"),
        evidence("off", tenant="other").model_copy(
            update={"condition": Condition(name="secret", holds=False)}
        ),
    ]
    assert assembled(evidence("old"), *hidden) == assembled(evidence("old"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"purpose": "billing", "expires_at": "2026-10-02", "source": "unknown"}, DropReason.MEMORY_PURPOSE),
        ({"expires_at": "2026-10-02", "source": "unknown"}, DropReason.MEMORY_EXPIRED),
        ({"source": "unknown"}, DropReason.MEMORY_SOURCE),
        ({}, DropReason.CONDITION_FALSE),
    ],
)
def test_the_first_gate_that_refuses_gives_the_reason(changes: dict[str, str], reason: DropReason) -> None:
    memory = {"text": "x", "subject": "u1", "purpose": "assist", "source": "user_stated", **changes}
    item = ContextItem(
        id="m",
        payload=Memory(**memory),
        scope=Scope(tenant="test_user"),
        condition=Condition(name="c", holds=False),
    )
    newer = evidence("n").model_copy(update={"supersedes": ("m",)})
    assert [(drop.id, drop.reason) for drop in assembled(item, newer).manifest.dropped] == [("m", reason)]


def test_an_expired_memory_supersedes_nothing() -> None:
    expired = ContextItem(
        id="m2",
        payload=Memory(
            text="x", subject="u1", purpose="assist", source="user_stated", expires_at="2026-10-01"
        ),
        scope=Scope(tenant="test_user"),
        supersedes=("e",),
    )
    assert [item.id for item in assembled(expired, evidence()).manifest.selected] == ["e"]


def test_a_superseded_source_becomes_a_note_with_the_reason_and_without_its_text() -> None:
    old = ContextItem(
        id="r2", payload=Evidence(text="viewer suffices"), version="2", scope=Scope(tenant="test_user")
    )
    new = ContextItem(
        id="r3",
        payload=Evidence(text="editor is needed"),
        version="3",
        scope=Scope(tenant="test_user"),
        supersedes=("r2",),
        supersedes_reason="the registry lists r3",
    )
    packet = assembled(old, new)
    (message,) = packet.messages
    assert "r2 (version 2) is superseded by r3 (version 3): the registry lists r3" in (message.content or "")
    assert "viewer suffices" not in packet.model_dump_json()


def test_a_superseded_rule_leaves_no_note() -> None:
    old = ContextItem(id="a", payload=Instruction(text="be brief"))
    new = ContextItem(id="b", payload=Instruction(text="be thorough"), supersedes=("a",))
    packet = assembled(old, new)
    assert [item.id for item in packet.manifest.selected] == ["b"]
    assert [drop.reason for drop in packet.manifest.dropped] == [DropReason.SUPERSEDED]


@pytest.mark.parametrize(
    ("state", "offered", "reason"),
    [
        (TaskState(), ["read", "write"], None),
        (TaskState(allowed_tools=frozenset({"read"})), ["read"], DropReason.TOOL_NOT_ALLOWED),
        (
            TaskState(limits=RunLimits(tool_attempts=2, tool_attempts_used=2), allowed_tools=frozenset()),
            [],
            DropReason.NO_ATTEMPTS_LEFT,
        ),
        (
            TaskState(limits=RunLimits(started_at="2026-10-01T23:59:15", deadline_seconds=45)),
            [],
            DropReason.DEADLINE_PASSED,
        ),
        (
            TaskState(limits=RunLimits(started_at="2026-10-01T23:59:16", deadline_seconds=45)),
            ["read", "write"],
            None,
        ),
    ],
)
def test_tools_are_those_that_stage_attempts_and_deadline_leave(
    state: TaskState, offered: list[str], reason: DropReason | None
) -> None:
    specs = [ToolSpec(name=name, description="", parameters={}) for name in ("write", "read")]
    packet = assembled(tools=tool_items(specs), state=state)
    assert [tool.name for tool in packet.tools] == offered
    assert {drop.reason for drop in packet.manifest.dropped} == ({reason} if reason else set())


def test_the_note_of_a_superseded_source_names_both_and_inherits_what_it_must() -> None:
    old = ContextItem(
        id="old",
        payload=Evidence(text="the old text"),
        version="r2",
        layer=Layer.INTERACTION,
        scope=Scope(tenant="test_user", readers={"support"}),
    )
    new = ContextItem(
        id="new",
        payload=Evidence(text="the new text"),
        scope=Scope(tenant="test_user"),
        trust=Trust.USER,
        supersedes=("old",),
    )
    for reason, ending in (("", ""), ("r3 is in force", ": r3 is in force")):
        by = new.model_copy(update={"supersedes_reason": reason})
        request = AssemblyRequest(context=CONTEXT, candidates=(old, by), window=10_000, max_output=10)
        note = next(
            item for item in admit(request, (), [old, by]).candidates if item.id == "old_superseded_note"
        )
        assert note.payload == Note(text=f"old (version r2) is superseded by new{ending}")
        assert (note.layer, note.trust, note.scope) == (Layer.INTERACTION, Trust.USER, old.scope)
        assert (note.owner, note.source) == ("assembler", "new")


def test_a_note_that_the_caller_wrote_takes_the_place_of_the_assembler_s() -> None:
    own = ContextItem(id="old_superseded_note", payload=Note(text="ask Ada why"), trust=Trust.TRUSTED)
    packet = assembled(evidence("old"), evidence("new").model_copy(update={"supersedes": ("old",)}), own)
    notes = [item for item in packet.manifest.selected if item.kind is Kind.NOTE]
    assert [note.id for note in notes] == ["old_superseded_note"]
    assert "ask Ada why" in (packet.messages[-1].content or "")
