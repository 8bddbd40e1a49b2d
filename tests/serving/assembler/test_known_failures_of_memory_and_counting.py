"""Failures that other tools are known for, in what is let in, kept and counted: each by its name.

Those of layout and of compaction stand in `test_known_failures_of_layout.py` and `compaction/`.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.assembler import (
    AssemblyRequest,
    ContextItem,
    ContextPolicy,
    DropReason,
    Evidence,
    FixedCounter,
    HandOff,
    Instruction,
    MaskingLimits,
    Memory,
    Packet,
    Renderer,
    RequestContext,
    Scope,
    ToolCall,
    ToolResult,
    ToolSpec,
    ToolStep,
    Trajectory,
    UserTurn,
    assemble,
    tool_items,
)
from serving.assembler.layout import OPEN_CALL_TEXT
from serving.assembler.payloads import pairing_problem
from serving.chat import ChatRenderer
from tests.support.tiny_model import TEMPLATES, write_tiny_folder

CONTEXT = RequestContext(tenant="test_user", actor="test_user", now="2026-10-02T00:00:00Z")
COUNTER = FixedCounter()
SEARCH = ToolSpec(
    name="search",
    description="Search the issues.",
    parameters={"type": "object", "properties": {"words": {"type": "string", "description": "äöü <b>"}}},
)


def packet(request: AssemblyRequest, policy: ContextPolicy | None = None) -> Packet:
    built = assemble(request, policy or ContextPolicy(), COUNTER)
    assert isinstance(built, Packet)
    return built


def request(**parts: Any) -> AssemblyRequest:
    return AssemblyRequest(**{"context": CONTEXT, "window": 10_000, "max_output": 10, **parts})


def memory(item_id: str = "m", *, tenant: str = "test_user", **fields: Any) -> ContextItem:
    payload = Memory(
        **{"text": "prefers mail", "subject": "test_user", "purpose": "assist", "source": "user_stated"}
        | fields
    )
    return ContextItem(id=item_id, payload=payload, scope=Scope(tenant=tenant))


# Memory filtered on write but not on read


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"purpose": "billing"}, DropReason.MEMORY_PURPOSE),
        ({"expires_at": CONTEXT.now}, DropReason.MEMORY_EXPIRED),
        ({"source": "tool_output"}, DropReason.MEMORY_SOURCE),
    ],
)
def test_a_memory_is_filtered_on_read_whatever_was_checked_when_it_was_written(
    fields: dict[str, Any], reason: DropReason
) -> None:
    built = packet(request(candidates=(memory(), memory("bad", text="planted", **fields))))
    assert [item.id for item in built.manifest.selected] == ["m"]
    assert [(item.id, item.reason) for item in built.manifest.dropped] == [("bad", reason)]
    assert "planted" not in built.model_dump_json()


# `test_user` matching `test_user1`

SIMILAR = ["test_user1", "test_use", "test_user ", "Test_user", "test%user", "test_user\0", "ｔest_user", "*"]


@pytest.mark.parametrize("other", SIMILAR)
def test_a_name_matches_itself_and_no_similar_one(other: str) -> None:
    theirs = (
        memory("of-tenant", tenant=other, text="theirs"),
        memory("of-subject", subject=other, text="theirs"),
        ContextItem(id="of-doc", payload=Evidence(text="theirs"), scope=Scope(tenant=other)),
        ContextItem(
            id="of-reader",
            payload=Evidence(text="theirs"),
            scope=Scope(tenant="test_user", readers=frozenset({other})),
        ),
    )
    built = packet(request(candidates=(memory(), *theirs)))
    written = built.model_dump_json()
    assert [item.id for item in built.manifest.selected] == ["m"]
    assert built.manifest.dropped == ()
    assert "theirs" not in written
    assert "of-" not in written


# Shallow copies that edit live history


def test_no_edit_of_what_was_handed_in_or_out_reaches_the_live_history() -> None:
    parameters: dict[str, Any] = {"type": "object", "properties": {"words": {"type": "string"}}}
    spec = ToolSpec(name="search", description="Search.", parameters=parameters)
    facets: dict[str, str] = {"product": "api"}
    asked = request(
        context=CONTEXT.model_copy(update={"facets": facets}),
        history=(ContextItem(id="u", payload=UserTurn(text="go")),),
        tools=tool_items([spec]),
    )
    before = packet(asked)
    sent = before.model_dump_json()
    parameters["properties"]["words"]["type"] = "integer"
    body = before.tools[0].to_api()
    function: Any = body["function"]
    function["parameters"]["properties"].clear()
    assert before.model_dump_json() == sent
    assert packet(asked).model_dump_json() == sent


@given(
    contents=st.lists(st.text(max_size=60), min_size=1, max_size=5),
    threshold=st.integers(0, 40),
    window=st.integers(40, 400),
)
def test_masking_and_trimming_leave_the_log_as_it_was(
    contents: list[str], threshold: int, window: int
) -> None:
    log = tuple(
        ContextItem(
            id=f"s{number}",
            payload=ToolStep(
                calls=(ToolCall(id=f"c{number}", name="search", arguments="{}"),),
                results=(ToolResult(call_id=f"c{number}", content=content),),
            ),
        )
        for number, content in enumerate(contents)
    )
    asked = request(history=(*log, ContextItem(id="u", payload=UserTurn(text="go"))), window=window)
    kept = copy.deepcopy(asked)
    policy = ContextPolicy(masking=MaskingLimits(threshold=threshold))
    assemble(asked, policy, COUNTER)
    assert asked == kept
    assert asked.model_dump_json() == kept.model_dump_json()


# Tool use stored without its result after a crash


@pytest.mark.parametrize("results", [0, 1])
def test_a_call_whose_result_was_lost_in_a_crash_is_sent_closed_and_said_to_be_open(results: int) -> None:
    calls = tuple(ToolCall(id=f"c{number}", name="search", arguments="{}") for number in range(2))
    torn = ToolStep(
        calls=calls,
        results=tuple(ToolResult(call_id=call.id, content="found") for call in calls[:results]),
    )
    log = (
        ContextItem(id="u", payload=UserTurn(text="go")),
        ContextItem(id="torn", payload=torn),
        ContextItem(id="again", payload=UserTurn(text="are you there?")),
    )
    built = packet(request(history=log, tools=tool_items([SEARCH])))
    assert pairing_problem(built.messages) is None
    lost = [call.id for call in calls[results:]]
    assert [(call.item_id, call.call_id) for call in built.manifest.open_calls] == [
        ("torn", call_id) for call_id in lost
    ]
    answers = {message.tool_call_id: message.content for message in built.messages if message.role == "tool"}
    assert {call_id: answers[call_id] for call_id in lost} == dict.fromkeys(lost, OPEN_CALL_TEXT)


# System tokens counted twice; tools counted in a form never sent


@pytest.fixture(scope="module", params=["qwen3", "qwen2_5"])
def template(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def renderer(template: str, tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    return ChatRenderer(write_tiny_folder(tmp_path_factory.mktemp(template), template))


SYSTEM = "You repair code. " * 20
RUN = Trajectory(system=SYSTEM, tools=(SEARCH,), turns=(UserTurn(text="go"),))


def counted(renderer: Renderer, run: Trajectory) -> Packet:
    built = assemble(run.request(0, context=CONTEXT, window=10_000, max_output=10), ContextPolicy(), renderer)
    assert isinstance(built, Packet)
    return built


def test_the_system_prompt_is_counted_once(renderer: Renderer) -> None:
    built = counted(renderer, RUN)
    tokens = {item.id: item.tokens for item in built.manifest.selected}
    rendered = renderer.render(built.messages, built.tools, built.spans)
    assert rendered.text.count(SYSTEM.strip()) == 1
    assert sum(tokens.values()) + built.manifest.budget.framing == len(rendered.token_ids)
    longer = counted(renderer, RUN.model_copy(update={"system": SYSTEM * 2})).manifest
    grown = {item.id: item.tokens - tokens[item.id] for item in longer.selected}
    assert longer.budget.used - built.manifest.budget.used == grown["system"] > 0
    assert {item_id: change for item_id, change in grown.items() if change} == {"system": grown["system"]}


def test_tools_are_counted_in_the_form_in_which_the_template_sends_them(
    renderer: Renderer, template: str
) -> None:
    built = counted(renderer, RUN)
    rendered = renderer.render(built.messages, built.tools, built.spans)
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    source = (TEMPLATES / f"{template}.jinja").read_text(encoding="utf-8")
    alone = environment.from_string(source).render(
        messages=[message.to_api() for message in built.messages],
        tools=[tool.to_api() for tool in built.tools],
        add_generation_prompt=True,
    )
    assert rendered.text == alone
    assert built.manifest.budget.used == len(rendered.token_ids)
    offsets = (*rendered.token_offsets, len(rendered.text))
    (tool,) = (span for span in rendered.spans if span.item_id == "tool:search")
    assert '"name": "search"' in rendered.text[offsets[tool.start] : offsets[tool.end]]
    without = counted(renderer, RUN.model_copy(update={"tools": ()})).manifest.budget.used
    (counted_tool,) = (item for item in built.manifest.selected if item.id == "tool:search")
    assert 0 < counted_tool.tokens <= built.manifest.budget.used - without


# Limits taken from a catalogue instead of the server


def test_the_budget_is_the_window_that_was_served_whatever_model_the_surface_names() -> None:
    served = request(
        candidates=(ContextItem(id="rule", payload=Instruction(text="x" * 4000)),),
        surface="qwen3-with-a-million-tokens",
        window=512,
    )
    outcome = assemble(served, ContextPolicy(), COUNTER)
    assert isinstance(outcome, HandOff)
    assert (outcome.budget, outcome.shortfall) == (502, 1000 - 502)
