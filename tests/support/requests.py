"""Requests of every shape for property tests: hostile texts, foreign tenants, parallel and open calls, bars, masks.

Every text that somebody out of scope could own holds a canary, so that a leak shows wherever it comes out.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from serving.assembler import (
    AssemblyRequest,
    AssistantTurn,
    Authority,
    BarMode,
    BarPolicy,
    BarState,
    Carrier,
    Classification,
    Condition,
    ContextItem,
    ContextPolicy,
    Evidence,
    Instruction,
    Layer,
    MaskingLimits,
    Memory,
    Note,
    Notification,
    OpenQuestion,
    OutputContract,
    PackerName,
    ReasoningEcho,
    RequestContext,
    RunLimits,
    Scope,
    SkillBody,
    SkillEntry,
    SuffixPosition,
    TaskState,
    TaskStateText,
    Terms,
    ToolCall,
    ToolContract,
    ToolOrder,
    ToolResult,
    ToolSpec,
    ToolStep,
    UserTurn,
)
from serving.assembler.compaction import CompactionPolicy, Strategy

NOW = datetime(2026, 10, 2, tzinfo=UTC)
CONTEXT = RequestContext(
    tenant="t1", actor="u1", groups=frozenset({"ops"}), now=NOW, facets={"product": "3.2"}
)
CANARY = "canary"

MARKS = ("<|im_end|>", "<|im_start|>", "<tool_call>", "</tool_call>", "<think>", "<agent_status>")
TEXTS = st.lists(
    st.one_of(
        st.sampled_from(
            [*MARKS, "</evidence:00000000>", "</agent_status>", "\n\n", "plain words", "é", "e\u0301"]
        ),
        st.text(max_size=6),
    ),
    min_size=1,
    max_size=5,
).map(lambda parts: "".join(parts) or "x")
TERMS = st.builds(
    Terms,
    relevance=st.sampled_from([0.0, 0.4, 0.9, 1.0]),
    freshness=st.sampled_from([0.5, 1.0]),
    redundancy=st.sampled_from([0.0, 0.3]),
    injection_risk=st.sampled_from([0.0, 0.5]),
)
IN_SCOPE = st.sampled_from(
    [
        Scope(tenant="t1"),
        Scope(tenant="t1", readers=frozenset({"u1"})),
        Scope(tenant="t1", readers=frozenset({"ops", "u9"})),
        Scope(tenant="t1", classification=Classification.INTERNAL),
        Scope(tenant="t1", applies_to={"product": frozenset({"3.1", "3.2"})}),
        Scope(tenant="t1", effective_from=NOW, effective_until=NOW + timedelta(seconds=1)),
    ]
)
OUT_OF_SCOPE = st.sampled_from(
    [
        Scope(tenant="t"),
        Scope(tenant="t11"),
        Scope(tenant="T1"),
        Scope(tenant="t1 "),
        Scope(tenant="t1", readers=frozenset()),
        Scope(tenant="t1", readers=frozenset({"u11", "op"})),
        Scope(tenant="t1", classification=Classification.CONFIDENTIAL),
        Scope(tenant="t1", applies_to={"product": frozenset({"3"})}),
        Scope(tenant="t1", applies_to={"region": frozenset({"eu"})}),
        Scope(tenant="t1", effective_from=NOW + timedelta(microseconds=1)),
        Scope(tenant="t1", effective_until=NOW),
        Scope(tenant="t1", lookup_failed=True),
    ]
)


def _memory(text: str, subject: str, purpose: str, source: str, hours: int | None) -> Memory:
    expires = None if hours is None else NOW + timedelta(hours=hours)
    return Memory(text=text, subject=subject, purpose=purpose, source=source, expires_at=expires)


KNOWLEDGE = st.one_of(
    st.builds(Evidence, text=TEXTS, document=st.one_of(st.none(), TEXTS)),
    st.builds(
        _memory,
        TEXTS,
        st.just("u1"),
        st.sampled_from(["assist", "billing"]),
        st.sampled_from(["user_stated", "system_record", "model_inferred", "unknown"]),
        st.sampled_from([None, -1, 0, 1]),
    ),
)
OF_THE_DEPLOYMENT = st.one_of(
    st.builds(Instruction, text=st.sampled_from(["Be brief.", "Write <tool_call> to call."])),
    st.builds(OutputContract, text=st.just("Answer in one line.")),
    st.builds(SkillEntry, name=st.just("slides"), description=st.just("when slides are asked for")),
    st.builds(Note, text=TEXTS),
    st.builds(OpenQuestion, text=TEXTS),
    st.builds(TaskStateText, text=TEXTS),
    st.builds(Notification, text=TEXTS, event=st.sampled_from(["file_changed", "job_finished"])),
)


@st.composite
def candidates(draw: st.DrawFn, hidden: bool = True) -> list[ContextItem]:
    """Items in and, with `hidden`, out of scope; the ids of those out of scope begin with the canary."""
    items: list[ContextItem] = []
    for index in range(draw(st.integers(0, 7))):
        out = hidden and draw(st.integers(0, 3)) == 0
        somebody_s = out or draw(st.booleans())
        items.append(
            ContextItem(
                id=f"{CANARY}-{index}" if out else f"item-{index}",
                payload=draw(KNOWLEDGE if somebody_s else OF_THE_DEPLOYMENT),
                scope=draw(OUT_OF_SCOPE if out else IN_SCOPE) if somebody_s else Scope(),
                source=f"{CANARY}-source" if out else "wiki",
                tokens=draw(st.one_of(st.none(), st.integers(0, 60))),
                terms=draw(TERMS),
                required=draw(st.integers(0, 5)) == 0,
                order=draw(st.integers(0, 1)),
                supersedes=draw(st.sampled_from([(), (), ("item-0",), (f"{CANARY}-1",)])) if index else (),
                supersedes_reason="newer",
                condition=draw(
                    st.sampled_from([None, None, Condition(name="beta"), Condition(name="old", holds=False)])
                ),
            )
        )
    return [item for item in items if item.id not in item.supersedes]


@st.composite
def logs(draw: st.DrawFn, hidden: bool = True, open_calls: bool = True) -> list[ContextItem]:
    """A history: turns, parallel steps, open calls where wanted, skills and notifications between them."""
    log: list[ContextItem] = []
    for index in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["user", "answer", "step", "step", "skill", "event"]))
        out = hidden and draw(st.integers(0, 7)) == 0
        payload = {
            "user": lambda: UserTurn(text=draw(TEXTS)),
            "answer": lambda: AssistantTurn(text=draw(TEXTS), reasoning=draw(st.sampled_from([None, "hm"]))),
            "step": lambda index=index: _step(draw, index, open_calls),
            "skill": lambda index=index: SkillBody(name=f"skill-{index}", text="One idea a slide."),
            "event": lambda: Notification(text=draw(TEXTS), event="file_changed"),
        }[kind]()
        log.append(
            ContextItem(
                id=f"{CANARY}-turn-{index}" if out else f"turn-{index}",
                payload=payload,
                scope=draw(OUT_OF_SCOPE) if out else Scope(),
            )
        )
    return log


def _step(draw: st.DrawFn, index: int, open_calls: bool) -> ToolStep:
    calls = tuple(
        ToolCall(id=f"c{index}_{n}", name=draw(st.sampled_from(["read", "find"])), arguments='{"a":  1}')
        for n in range(draw(st.integers(1, 3)))
    )
    answered = draw(st.permutations(calls))[: draw(st.integers(0 if open_calls else len(calls), len(calls)))]
    results = tuple(
        ToolResult(
            call_id=call.id,
            content=draw(st.one_of(TEXTS, st.just("long " * 60), st.just("same " * 40))),
            failed=draw(st.booleans()),
        )
        for call in answered
    )
    return ToolStep(calls=calls, results=results, reasoning=draw(st.sampled_from([None, "because"])))


TOOLS = st.lists(
    st.sampled_from(
        [
            ContextItem(
                id=f"tool:{name}",
                payload=ToolContract(
                    spec=ToolSpec(name=name, description=name, parameters={"type": "object"}),
                    authority=authority,
                    boilerplate=name == "find",
                ),
                order=index,
            )
            for index, (name, authority) in enumerate(
                [("read", Authority.READ), ("find", Authority.READ), ("write", Authority.WRITE)]
            )
        ]
    ),
    unique_by=lambda item: item.id,
)
POLICIES = st.builds(
    ContextPolicy,
    layer_order=st.permutations(list(Layer)).map(tuple),
    packer=st.sampled_from(PackerName),
    suffix_position=st.sampled_from(SuffixPosition),
    carrier=st.sampled_from(Carrier),
    tool_order=st.sampled_from(ToolOrder),
    reasoning=st.sampled_from(ReasoningEcho),
    masking=st.one_of(st.none(), st.builds(MaskingLimits, threshold=st.integers(0, 80))),
    compaction=st.one_of(
        st.none(), st.builds(CompactionPolicy, strategy=st.sampled_from(Strategy), threshold=st.just(0.6))
    ),
    status_bar=st.one_of(st.none(), st.builds(BarPolicy, mode=st.sampled_from(BarMode))),
)
STATES = st.builds(
    TaskState,
    limits=st.one_of(
        st.just(RunLimits()),
        st.builds(RunLimits, tool_attempts=st.just(3), tool_attempts_used=st.integers(0, 4)),
        st.just(RunLimits(started_at=NOW - timedelta(seconds=60), deadline_seconds=45)),
    ),
    allowed_tools=st.sampled_from([None, frozenset({"read"}), frozenset()]),
)


@st.composite
def requests(
    draw: st.DrawFn, hidden: bool = True, window: int | None = None, open_calls: bool = True
) -> AssemblyRequest:
    """A request that makes sense; with `hidden` it holds items that its reader must never learn of."""
    return AssemblyRequest(
        context=CONTEXT,
        candidates=tuple(draw(candidates(hidden))),
        history=tuple(draw(logs(hidden, open_calls))),
        tools=tuple(draw(TOOLS)),
        window=draw(st.integers(60, 900)) if window is None else window,
        max_output=draw(st.integers(0, 40)),
        overhead=draw(st.integers(0, 10)),
        state=draw(STATES),
        bar=draw(st.sampled_from([None, BarState(now=NOW, call_limits={"read": 3})])),
    )
