from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.assembler import (
    AssemblyRequest,
    Authority,
    Carrier,
    ContextItem,
    ContextPolicy,
    DeferredTool,
    DeferredTools,
    FixedCounter,
    Instruction,
    Kind,
    Layer,
    Packet,
    RequestContext,
    Skill,
    SkillBody,
    SkillFile,
    SkillLibrary,
    ToolCall,
    ToolContract,
    ToolResult,
    ToolSpec,
    ToolStep,
    UserTurn,
    assemble,
    tool_items,
)
from serving.errors import UsageError

CONTEXT = RequestContext(tenant="t1", actor="u1", now="2026-10-02")
RULE = ContextItem(id="rule", payload=Instruction(text="Be brief."))
SPEC = ToolSpec(name="load", description="Load a skill or a tool.", parameters={"type": "object"})
LIBRARY = SkillLibrary(
    skills=(
        Skill(
            name="slides",
            description="when slides are asked for",
            body="Make ten slides. Units: see references/units.md.",
            files=(SkillFile(path="references/units.md", text="SI only."),),
            version="3",
        ),
        Skill(name="sql", description="when a query is asked for", body="Always name the columns."),
    )
)
DEFERRED = DeferredTools(
    tools=tuple(
        DeferredTool(
            contract=ToolContract(
                spec=ToolSpec(name=name, description=f"{name} it.", parameters={"type": "object"}),
                authority=Authority.READ,
            ),
            line=f"{name} something",
        )
        for name in ("measure", "translate")
    )
)


def step(number: int) -> ContextItem:
    call = ToolCall(id=f"c{number}", name="load", arguments="{}")
    return ContextItem(
        id=f"step-{number}",
        payload=ToolStep(calls=(call,), results=(ToolResult(call_id=call.id, content="loaded"),)),
    )


def packet(log: tuple[ContextItem, ...], policy: ContextPolicy | None = None) -> Packet:
    request = AssemblyRequest(
        context=CONTEXT,
        candidates=(RULE, *LIBRARY.catalogue, *DEFERRED.catalogue),
        history=log,
        tools=tool_items([SPEC]),
        window=100_000,
        max_output=10,
    )
    built = assemble(request, policy or ContextPolicy(), FixedCounter())
    assert isinstance(built, Packet)
    return built


def test_every_skill_and_deferred_tool_is_named_in_the_head_whether_loaded_or_not() -> None:
    loaded = (step(0), *LIBRARY.load("slides", ()), *DEFERRED.load("measure", ()))
    for log in ((), loaded):
        system = packet(log).messages[0]
        assert system.content == (
            "Be brief.\n\nSkill slides: when slides are asked for\n\nSkill sql: when a query is asked for\n\n"
            "Tool measure: measure something\n\nTool translate: translate something"
        )
    assert {item.layer for item in (*LIBRARY.catalogue, *DEFERRED.catalogue)} == {Layer.CAPABILITY}


def test_a_body_is_loaded_where_it_was_called_for_and_once() -> None:
    log = (step(0),)
    (body,) = LIBRARY.load("slides", log)
    assert (body.id, body.kind, body.version) == ("skill:slides", Kind.SKILL_BODY, "3")
    assert LIBRARY.load("slides", (*log, body, step(1))) == ()
    sent = packet((*log, body)).messages[-1].content or ""
    assert sent.startswith("loaded\n\n<skill:")
    assert "Make ten slides." in sent


def test_a_file_is_loaded_on_demand_and_brings_the_body_that_it_needs() -> None:
    both = LIBRARY.load("slides", (), "references/units.md")
    assert [item.id for item in both] == ["skill:slides", "skill:slides/references/units.md"]
    body, file = both
    assert LIBRARY.load("slides", (body,), "references/units.md") == (file,)
    assert LIBRARY.load("slides", both, "references/units.md") == ()
    assert 'file="references/units.md"' in (packet((step(0), *both)).messages[-1].content or "")


def test_a_body_that_was_sent_stays_when_the_library_has_a_newer_one() -> None:
    newer = SkillLibrary(skills=(Skill(name="slides", description="now and then", body="Five slides."),))
    assert newer.load("slides", LIBRARY.load("slides", ())) == ()


def test_a_deferred_contract_is_appended_and_the_offered_tools_stay() -> None:
    (contract,) = DEFERRED.load("measure", (step(0),))
    assert contract.kind is Kind.TOOL_CONTRACT
    assert DEFERRED.load("measure", (step(0), contract)) == ()
    before, after = packet((step(0),)), packet((step(0), contract))
    assert before.tools == after.tools
    assert '"name":"measure"' in (after.messages[-1].content or "")


LOADS = st.sampled_from(
    [
        ("skill", "slides", None),
        ("skill", "slides", "references/units.md"),
        ("skill", "sql", None),
        ("tool", "measure", None),
        ("tool", "translate", None),
        ("user", "", None),
    ]
)


@given(loads=st.lists(LOADS, max_size=8), carrier=st.sampled_from(list(Carrier)))
def test_each_request_extends_the_one_before_byte_for_byte(
    loads: list[tuple[str, str, str | None]], carrier: Carrier
) -> None:
    policy = ContextPolicy(carrier=carrier)
    log: tuple[ContextItem, ...] = ()
    sent = packet(log, policy)
    emitted: list[str] = []
    for number, (what, name, file) in enumerate(loads):
        if what == "user":
            log = (*log, ContextItem(id=f"turn-{number}", payload=UserTurn(text="go on")))
        else:
            log = (*log, step(number))
            loaded = LIBRARY.load(name, log, file) if what == "skill" else DEFERRED.load(name, log)
            emitted += [item.id for item in loaded]
            log = (*log, *loaded)
        grown = packet(log, policy)
        assert grown.tools == sent.tools
        assert [m.to_api() for m in grown.messages[: len(sent.messages)]] == [
            m.to_api() for m in sent.messages
        ]
        sent = grown
    assert len(set(emitted)) == len(emitted)
    whole = "".join(message.content or "" for message in sent.messages)
    for text in ("Make ten slides.", "SI only.", "Always name the columns.", '"name":"measure"'):
        assert whole.count(text) <= 1


@pytest.mark.parametrize(
    ("history", "tools", "sentence"),
    [
        (
            (
                ContextItem(id="a", payload=SkillBody(name="s", text="x")),
                ContextItem(id="b", payload=SkillBody(name="s", text="y")),
            ),
            (),
            "Every loaded skill text is used once in a request, but 's' comes twice",
        ),
        (
            (
                ContextItem(id="a", payload=SkillBody(name="s", text="x", file="f")),
                ContextItem(id="b", payload=SkillBody(name="s", text="x", file="f")),
            ),
            (),
            "but 's/f' comes twice",
        ),
        (
            (
                ContextItem(id="a", payload=ToolContract(spec=SPEC)),
                ContextItem(id="b", payload=ToolContract(spec=SPEC)),
            ),
            (),
            "Every loaded tool is used once in a request, but 'load' comes twice",
        ),
        (
            (ContextItem(id="a", payload=ToolContract(spec=SPEC)),),
            tool_items([SPEC]),
            "A tool is offered from the start or loaded into the history, but 'load' is both",
        ),
    ],
)
def test_what_is_loaded_twice_is_refused(
    history: tuple[ContextItem, ...], tools: tuple[ContextItem, ...], sentence: str
) -> None:
    request = AssemblyRequest(context=CONTEXT, history=history, tools=tools, window=1000, max_output=10)
    with pytest.raises(UsageError, match=sentence):
        assemble(request, ContextPolicy(), FixedCounter())


def test_a_skill_of_another_tenant_neither_counts_as_loaded_twice_nor_shows() -> None:
    foreign = ContextItem(id="b", payload=SkillBody(name="sql", text="theirs"), scope={"tenant": "t2"})
    built = packet((step(0), *LIBRARY.load("sql", ()), foreign))
    assert "theirs" not in built.model_dump_json()


@pytest.mark.parametrize(
    ("attempt", "sentence"),
    [
        (lambda: LIBRARY.load("excel", ()), "one of the skills slides, sql, but 'excel'"),
        (
            lambda: LIBRARY.load("slides", (), "secrets.md"),
            r"one of the files of skill slides \(references/units.md\)",
        ),
        (lambda: LIBRARY.load("sql", (), "x.md"), r"files of skill sql \(none\)"),
        (lambda: DEFERRED.load("fly", ()), "one of the deferred tools measure, translate, but 'fly'"),
        (lambda: SkillFile(path="../etc/passwd", text="x"), r"without '\.\.'"),
        (lambda: SkillFile(path="/etc/passwd", text="x"), "a relative path"),
        (lambda: Skill(name="two words", description="x", body="x"), "letters, digits and"),
        (lambda: SkillLibrary(skills=LIBRARY.skills * 2), "every skill has its own name"),
        (lambda: DeferredTools(tools=DEFERRED.tools * 2), "every deferred tool has its own name"),
        (lambda: DeferredTool(contract=ToolContract(spec=SPEC), line="a\nb"), "has a line break"),
        (
            lambda: Skill(name="s", description="d", body="b", files=(SkillFile(path="f", text="x"),) * 2),
            "names one twice",
        ),
    ],
)
def test_what_is_not_there_or_not_sound_is_named(attempt: object, sentence: str) -> None:
    assert callable(attempt)
    with pytest.raises(UsageError, match=sentence):
        attempt()
