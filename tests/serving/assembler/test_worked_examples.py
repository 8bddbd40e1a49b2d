"""The worked examples come out through `assemble`, by general rules: none of them names an id."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from serving.assembler import (
    AssemblyRequest,
    Authority,
    Carrier,
    Condition,
    ContextItem,
    ContextPolicy,
    DropReason,
    Evidence,
    FixedCounter,
    HandOff,
    HandOffReason,
    Instruction,
    Kind,
    Memory,
    Note,
    PackerName,
    Packet,
    RequestContext,
    RunLimits,
    Scope,
    TaskState,
    Terms,
    ToolSpec,
    Trust,
    assemble,
    tool_items,
)

SUPPORT_AGENT = Path(__file__).parents[3] / "examples" / "support_agent.json"

TOOL = ToolSpec(name="look_up_job", description="Look up a job.", parameters={"type": "object"})


def packed_items(example: dict[str, Any]) -> list[ContextItem]:
    return [
        ContextItem(
            id=candidate["id"],
            payload=Evidence(text=f"text of {candidate['id']}"),
            scope=Scope(tenant=candidate["tenant"]),
            tokens=candidate["tokens"],
            terms=Terms(
                relevance=candidate["relevance"],
                authority=candidate["authority"],
                freshness=candidate["freshness"],
                redundancy=0.2 if candidate["redundant"] else 0.0,
            ),
        )
        for candidate in example["candidates"]
    ]


@pytest.mark.parametrize("packer", list(PackerName))
@pytest.mark.parametrize("case_index", [0, 1, 2])
def test_pack_context_comes_out_as_published(
    worked: dict[str, Any], context: RequestContext, packer: PackerName, case_index: int
) -> None:
    example = worked["pack_context"]
    case = example["cases"][case_index]
    items = packed_items(example)
    wanted = case.get("only", [item.id for item in items])
    request = AssemblyRequest(
        context=context,
        candidates=tuple(item for item in items if item.id in wanted),
        window=case["window"],
        max_output=case["max_output"],
        overhead=case["overhead"],
    )
    packet = assemble(request, ContextPolicy(packer=packer), FixedCounter.of(items))
    assert isinstance(packet, Packet)
    manifest = packet.manifest
    assert manifest.budget.budget == case.get("budget", 2000)
    assert [item.id for item in manifest.selected] == case["selected"]
    assert [item.id for item in manifest.dropped] == case["dropped"]
    assert manifest.budget.used == case["used"]
    assert manifest.budget.unused == case.get("unused", manifest.budget.budget - case["used"])
    worth = {item.id: item.utility for item in (*manifest.selected, *manifest.dropped)}
    assert worth == case.get("utility", worth)
    assert {item.reason for item in manifest.dropped} == {DropReason.UTILITY_NOT_POSITIVE}
    assert "other-tenant-doc" not in packet.model_dump_json()


def test_load_memory_keeps_facts_and_hypotheses_apart(worked: dict[str, Any]) -> None:
    example = worked["load_memory"]
    items = [
        ContextItem(
            id=f"m{index}",
            scope=Scope(tenant=record["tenant"]),
            payload=Memory(
                text=record["text"],
                subject=record["subject"],
                purpose=record["purpose"],
                source=record["source"],
                expires_at=example[record["expires_at"]],
            ),
        )
        for index, record in enumerate(example["records"])
    ]
    request = AssemblyRequest(
        context=RequestContext(
            tenant=example["tenant"],
            actor="agent",
            subject=example["subject"],
            purpose=example["purpose"],
            now=example["now"],
        ),
        candidates=tuple(items),
        window=4000,
        max_output=100,
    )
    packet = assemble(request, ContextPolicy(), FixedCounter())
    assert isinstance(packet, Packet)
    texts = {item.id: item.payload.text for item in items if isinstance(item.payload, Memory)}
    assert [texts[item_id] for item_id in packet.manifest.memory.facts] == example["facts"]
    assert [texts[item_id] for item_id in packet.manifest.memory.hypotheses] == example["hypotheses"]
    assert {item.id: item.reason for item in packet.manifest.dropped} == {
        "m2": DropReason.MEMORY_PURPOSE,
        "m4": DropReason.MEMORY_EXPIRED,
        "m5": DropReason.MEMORY_SOURCE,
    }
    sent = packet.messages[0].content or ""
    assert 'standing="fact">\nKey created 3 days ago' in sent
    assert 'standing="hypothesis">\nPrefers short answers' in sent
    assert '"m3"' not in packet.model_dump_json()


def j42_items(example: dict[str, Any], *, with_superseded_source: bool) -> list[ContextItem]:
    evidence, terms = example["evidence"], example["terms"]

    def piece(item_id: str, text: str, **more: Any) -> ContextItem:
        given = {key: value for key, value in terms[item_id].items() if key not in ("required", "trust")}
        return ContextItem(
            id=item_id,
            payload=Evidence(text=text),
            scope=Scope(tenant="t1"),
            tokens=example["sizes"].get(item_id),
            terms=Terms(**given),
            **more,
        )

    core = "Find out why job J-42 failed. " + " ".join(example["open_questions"])
    items = [
        ContextItem(id="core", payload=Instruction(text=core), tokens=example["sizes"]["core"]),
        piece("E1", evidence["E1"], required=True),
        piece("E2", evidence["E2"], required=True),
        piece("E5_repeat", evidence["E5"]),
        piece("E6_attachment", evidence["E6"], trust=Trust.UNTRUSTED),
    ]
    if with_superseded_source:
        items += [
            piece("E3", evidence["E3"], required=True, version="r3", supersedes=("E4",)),
            ContextItem(
                id="E4",
                payload=Evidence(text=evidence["E4"]),
                version="r2",
                scope=Scope(tenant="t1"),
                tokens=400,
            ),
        ]
    else:
        note = Note(text=evidence["E4"])
        items += [
            piece("E3", evidence["E3"], required=True),
            ContextItem(id="E4_superseded_note", payload=note, tokens=example["sizes"]["E4_superseded_note"]),
        ]
    return items


@pytest.mark.parametrize("with_superseded_source", [True, False])
def test_j42_fits_with_what_decides_it_and_leaves_out_repeat_and_attachment(
    worked: dict[str, Any], context: RequestContext, with_superseded_source: bool
) -> None:
    example = worked["j42"]
    case = example["cases"][0]
    request = AssemblyRequest(
        context=context,
        candidates=tuple(j42_items(example, with_superseded_source=with_superseded_source)),
        window=case["limit"],
        max_output=case["reserve"],
    )
    packet = assemble(request, ContextPolicy(), FixedCounter(example["sizes"]))
    assert isinstance(packet, Packet)
    manifest = packet.manifest
    assert [item.id for item in manifest.selected] == case["selected"]
    assert manifest.budget.used == case["input"]
    assert manifest.budget.used + manifest.budget.max_output == case["with_reserve"]
    assert manifest.budget.unused == case["left"]
    assert example["sizes"]["E6_attachment"] < manifest.budget.unused, "the attachment would have fitted"
    reasons = {item.id: item.reason for item in manifest.dropped}
    assert reasons["E6_attachment"] is DropReason.UTILITY_NOT_POSITIVE
    assert reasons["E5_repeat"] is DropReason.UTILITY_NOT_POSITIVE
    if with_superseded_source:
        assert reasons["E4"] is DropReason.SUPERSEDED
        assert "E4 (version r2) is superseded by E3 (version r3)" in (packet.messages[1].content or "")
        assert example["evidence"]["E4"] not in packet.model_dump_json()


@pytest.mark.parametrize("with_superseded_source", [True, False])
def test_j42_hands_off_before_any_model_call_when_the_required_set_does_not_fit(
    worked: dict[str, Any], context: RequestContext, with_superseded_source: bool
) -> None:
    example = worked["j42"]
    case = example["cases"][1]
    request = AssemblyRequest(
        context=context,
        candidates=tuple(j42_items(example, with_superseded_source=with_superseded_source)),
        window=case["limit"],
        max_output=case["reserve"],
    )
    outcome = assemble(request, ContextPolicy(), FixedCounter(example["sizes"]))
    assert isinstance(outcome, HandOff)
    assert outcome.reason is HandOffReason.REQUIRED_EXCEEDS_BUDGET
    assert outcome.shortfall == case["shortfall"]
    assert [item.id for item in outcome.manifest.selected if item.required] == case["required"]
    assert (outcome.largest[0].id, outcome.largest[0].tokens) == ("core", 500)


@pytest.mark.parametrize(("used", "offered"), [(0, 1), (5, 1), (6, 0), (9, 0)])
def test_j42_limits_survive_a_rebuild_and_no_attempts_means_no_tools(
    worked: dict[str, Any], context: RequestContext, used: int, offered: int
) -> None:
    given = worked["j42"]["limits"]
    limits = RunLimits(
        tool_attempts=given["tool_attempts"],
        tool_attempts_used=used,
        started_at=context.now,
        deadline_seconds=given["deadline_seconds"],
    )
    request = AssemblyRequest(
        context=context,
        candidates=(ContextItem(id="core", payload=Instruction(text="core"), tokens=500),),
        tools=tool_items([TOOL]),
        state=TaskState(limits=limits),
        window=1600,
        max_output=300,
    )
    first, rebuilt = (assemble(request, ContextPolicy(), FixedCounter()) for _ in range(2))
    assert isinstance(first, Packet)
    assert isinstance(rebuilt, Packet)
    assert len(first.tools) == offered
    assert first.manifest.limits == rebuilt.manifest.limits
    assert rebuilt.manifest.limits.attempts == max(0, 6 - used)
    assert rebuilt.manifest.limits.seconds == 45
    reasons = [item.reason for item in first.manifest.dropped]
    assert reasons == ([] if offered else [DropReason.NO_ATTEMPTS_LEFT])


def test_n_conditions_before_the_cache_boundary_make_two_to_the_n_prefixes(
    worked: dict[str, Any], context: RequestContext
) -> None:
    example = worked["cache_keys"]
    count = example["binary_conditions_before_boundary"]
    head = [
        ContextItem(
            id=f"rule-{index}",
            payload=Instruction(text=f"rule {index}"),
            condition=Condition(name=f"condition {index}", holds=index % 2 == 0),
        )
        for index in range(count)
    ]
    behind = ContextItem(
        id="e",
        payload=Evidence(text="behind the boundary"),
        scope=Scope(tenant="t1"),
        condition=Condition(name="has evidence"),
    )
    request = AssemblyRequest(context=context, candidates=(*head, behind), window=1000, max_output=10)
    packet = assemble(request, ContextPolicy(), FixedCounter())
    assert isinstance(packet, Packet)
    assert len(packet.manifest.cache_keys.conditions) == count
    assert packet.manifest.cache_keys.distinct_prefixes == example["distinct_prefixes"]
    assert [item.id for item in packet.manifest.dropped] == ["rule-1"]


@pytest.fixture(scope="module")
def support_agent() -> AssemblyRequest:
    """The first answer of the support agent to a customer whose key was revoked."""
    return AssemblyRequest.model_validate_json(SUPPORT_AGENT.read_text(encoding="utf-8"))


@pytest.fixture(params=list(Carrier))
def answered(support_agent: AssemblyRequest, request: pytest.FixtureRequest) -> Packet:
    packet = assemble(support_agent, ContextPolicy(carrier=request.param), FixedCounter())
    assert isinstance(packet, Packet)
    return packet


def test_the_support_agent_reads_its_four_policy_sections_and_nothing_else_as_rules(
    answered: Packet,
) -> None:
    rules = (Kind.INSTRUCTION, Kind.OUTPUT_CONTRACT)
    in_force = tuple(item.id for item in answered.manifest.selected if item.kind in rules)
    assert in_force == ("role", "policy", "tool_guidance", "output")
    systems = [message for message in answered.messages if message.role == "system"]
    assert [span.item_id for span in answered.spans if span.path == ("messages", 0, "content")] == [
        "role",
        "policy",
        "tool_guidance",
        "output",
    ]
    assert systems == [answered.messages[0]]


def test_the_support_agent_can_look_and_can_neither_rotate_nor_delete_a_key(answered: Packet) -> None:
    assert [tool.name for tool in answered.tools] == ["check_api_key_status", "search_incidents"]
    assert {tool.authority for tool in answered.manifest.tools} == {Authority.READ}
    reasons = {item.id: item.reason for item in answered.manifest.dropped}
    for name in ("rotate_api_key", "delete_api_key"):
        assert reasons[f"tool:{name}"] is DropReason.TOOL_NOT_ALLOWED
        assert name not in "".join(message.model_dump_json() for message in answered.messages)


def test_a_runbook_span_that_gives_orders_is_shown_to_the_support_agent_as_data(
    support_agent: AssemblyRequest, answered: Packet
) -> None:
    injected = next(item for item in support_agent.candidates if item.id == "runbook-injected")
    assert isinstance(injected.payload, Evidence)
    holding = [message for message in answered.messages if injected.payload.text in (message.content or "")]
    assert [message.role for message in holding] == ["user"]
    fence = re.search(
        r'<(evidence:[0-9a-f]{8}) id="runbook-injected"[^>]* trust="untrusted">\n', holding[0].content or ""
    )
    assert fence is not None
    inside = (holding[0].content or "")[fence.end() :].partition(f"\n</{fence[1]}>")[0]
    assert inside == injected.payload.text


def test_of_two_runbook_revisions_the_support_agent_reads_the_current_one_and_why(
    support_agent: AssemblyRequest, answered: Packet
) -> None:
    texts = {
        item.id: item.payload.text for item in support_agent.candidates if isinstance(item.payload, Evidence)
    }
    sent = "".join(message.content or "" for message in answered.messages)
    assert texts["runbook-401"] in sent
    assert texts["runbook-401-old"] not in sent
    assert "runbook-401-old (version 2026-03) is superseded by runbook-401 (version 2026-09)" in sent


def test_the_support_agent_recalls_one_memory_as_a_fact_and_nothing_of_another_tenant(
    answered: Packet,
) -> None:
    assert answered.manifest.memory.facts == ("memory-environment",)
    assert answered.manifest.memory.hypotheses == ()
    assert "other-tenant-runbook" not in answered.model_dump_json()
    assert [(gap.source, gap.reason) for gap in answered.manifest.missing] == [("status-page", "timed_out")]
