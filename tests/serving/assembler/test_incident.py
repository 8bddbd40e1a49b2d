"""Each class of incident end to end: a record that went wrong, the cure, and rules that overdo it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from serving.assembler import (
    AssemblyRequest,
    AssistantTurn,
    Authority,
    Carry,
    ContextItem,
    ContextPolicy,
    DropReason,
    IncidentClass,
    MaskingLimits,
    Regression,
    Stage,
    TaskState,
    Terms,
    ToolCall,
    ToolContract,
    ToolResult,
    ToolSpec,
    ToolStep,
    UserTurn,
    UtilityWeights,
    assemble,
    check_regression,
    violations,
)
from serving.assembler.compaction import Compaction, CompactionPolicy, Strategy, SummaryAnswer, finish
from serving.assembler.prepare import estimated_tokens
from serving.errors import UsageError
from tests.support.incidents import (
    ASKED,
    CONTEXT,
    COUNTER,
    CROWDED,
    DEFAULT,
    FORUM,
    INCIDENTS,
    KNAPSACK,
    NEW_DOC,
    OLD_DOC,
    OUT_CASES,
    SCOPE_CASES,
    TRUSTING,
    Incident,
    doc,
    dropped,
    output,
    request,
    selected,
)


@pytest.mark.parametrize("incident", INCIDENTS, ids=[one.classification.value for one in INCIDENTS])
def test_an_incident_fails_under_the_old_rules_and_passes_with_its_neighbours_under_the_new(
    incident: Incident,
) -> None:
    made = incident.build()
    own = made.cases[0]
    assert own.expectation.items[0] == incident.expected
    assert violations(made.request, made.old_policy, COUNTER, own.expectation)
    assert violations(own.request, made.new_policy, COUNTER, own.expectation) == ()
    assert tuple(case.name for case in made.cases[1:]) == incident.neighbours
    report = check_regression(Regression.model_validate_json(made.model_dump_json()), COUNTER)
    assert report.recognised
    assert report.passed


def test_every_class_has_its_incident() -> None:
    assert {one.classification for one in INCIDENTS} == set(IncidentClass)


BY_CLASS = {one.classification: one for one in INCIDENTS}

SUSPICIOUS = ContextPolicy(name="suspicious", weights=UtilityWeights(injection_risk=100.0))
NAIVE = ContextPolicy(name="naive", weights=UtilityWeights(redundancy=0.0, injection_risk=0.0))


@pytest.mark.parametrize(
    ("kind", "policy", "broken"),
    [
        (IncidentClass.WRONG_POLICY, NAIVE, "dangerous"),
        (IncidentClass.MISSING_CONSTRAINT, DEFAULT, "incident"),
        (IncidentClass.POISONED_DOCUMENT, TRUSTING, "incident"),
        (IncidentClass.POISONED_DOCUMENT, SUSPICIOUS, "harmless"),
        (IncidentClass.POISONED_DOCUMENT, NAIVE, "beside_harmless"),
    ],
)
def test_a_policy_that_cures_too_much_or_too_little_breaks_a_case(
    kind: IncidentClass, policy: ContextPolicy, broken: str
) -> None:
    report = check_regression(BY_CLASS[kind].build(), COUNTER, policy)
    assert not report.passed
    assert broken in [case.name for case in report.cases if case.violations]


def test_a_rule_that_blocks_the_harmless_twin_too_is_refused() -> None:
    incident = BY_CLASS[IncidentClass.POISONED_DOCUMENT]
    rule = doc("forum-rule", "The forum is not a source.", supersedes=("forum", "forum-twin"))
    with pytest.raises(UsageError, match=r"fails the case 'beside_harmless'.*forum-twin: expected selected"):
        incident.build(corrected=request(FORUM, rule), new_policy=TRUSTING)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (
            lambda: BY_CLASS[IncidentClass.POISONED_DOCUMENT].build(old_policy=DEFAULT),
            "Expected a record that replays exactly, but this one is historical (policy_changed",
        ),
        (
            lambda: BY_CLASS[IncidentClass.POISONED_DOCUMENT].build(new_policy=TRUSTING),
            "The new policy 'trusting' still lets forum in; expected no trace of it or condition_false or",
        ),
        (
            lambda: BY_CLASS[IncidentClass.POISONED_DOCUMENT].build(critical="no-such"),
            "Expected the id of an item in the request, but 'no-such' is none",
        ),
        (
            lambda: BY_CLASS[IncidentClass.MISSING_CONSTRAINT].build(new_policy=DEFAULT),
            "The new policy 'default' fails the case 'incident' (What happened): freeze: expected selected, "
            "got dropped (no_room)",
        ),
        (
            lambda: BY_CLASS[IncidentClass.MISSING_CONSTRAINT].build(
                classification=IncidentClass.STALE_RETRIEVAL, critical="long-guide", new_policy=KNAPSACK
            ),
            "leaves long-guide out, but for no_room, which depends on what else was there; expected no trace",
        ),
        (
            lambda: BY_CLASS[IncidentClass.MISSING_CONSTRAINT].build(critical="long-guide"),
            "The old policy 'default' passes this case already",
        ),
        (
            lambda: BY_CLASS[IncidentClass.STALE_RETRIEVAL].build(corrected=None),
            "still lets guide-r2 in",
        ),
        (
            lambda: BY_CLASS[IncidentClass.STALE_RETRIEVAL].build(corrected=request(NEW_DOC)),
            "a cure that merely takes the item out of the request cannot be tested",
        ),
        (
            lambda: BY_CLASS[IncidentClass.MISSING_CONSTRAINT].build(
                corrected=CROWDED.model_copy(update={"window": 9000})
            ),
            "must keep the room of the recorded one, but its window is 9000 instead of 210",
        ),
        (
            lambda: BY_CLASS[IncidentClass.STALE_RETRIEVAL].build(
                corrected=request(OLD_DOC, context=CONTEXT.model_copy(update={"tenant": "t2"}))
            ),
            "must be of the same tenant, actor and time, but its tenant differs",
        ),
        (
            lambda: BY_CLASS[IncidentClass.POISONED_DOCUMENT].build(keep=["other"]),
            "other: expected selected, got absent",
        ),
        (
            lambda: BY_CLASS[IncidentClass.TOOL_OUTPUT_OVERFLOW].build(corrected=None),
            "expected a packet, got a hand_off",
        ),
    ],
)
def test_what_proves_nothing_is_refused(build: Callable[[], object], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        build()
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_must_stay_in_as_well_is_pinned() -> None:
    incident = BY_CLASS[IncidentClass.STALE_RETRIEVAL]
    own = incident.build(keep=["guide-r3"]).cases[0]
    assert selected("guide-r3") in own.expectation.items


def test_a_wrongly_taken_item_is_kept_out_by_the_new_policy() -> None:
    lenient = ContextPolicy(name="lenient", weights=UtilityWeights(redundancy=0.0))
    repeat = doc("repeat", terms=Terms(relevance=0.4, redundancy=0.5))
    made = Incident(
        IncidentClass.WRONG_POLICY,
        "repeat",
        request(repeat),
        lenient,
        DEFAULT,
        dropped("repeat", DropReason.UTILITY_NOT_POSITIVE),
        OUT_CASES,
    ).build()
    assert made.cases[0].expectation.items == (dropped("repeat", DropReason.UTILITY_NOT_POSITIVE),)


LOG = (
    ASKED,
    ContextItem(id="answer", payload=AssistantTurn(text="The window closes at 14:00 on Fridays. " * 12)),
    ContextItem(id="monday", payload=UserTurn(text="And on Mondays?")),
    ContextItem(id="answer-2", payload=AssistantTurn(text="On Mondays all is free. " * 12)),
    ContextItem(id="today", payload=UserTurn(text="And today?")),
)
COMPACTING = ContextPolicy(
    name="compacting",
    compaction=CompactionPolicy(
        strategy=Strategy.COMBINED, threshold=0.1, target_tokens=64, keep_last=1, keep_user_turns=False
    ),
)


def compacted(summary_text: str) -> AssemblyRequest:
    asked = request(history=LOG)
    plan = assemble(asked, COMPACTING, COUNTER).compaction
    assert plan is not None
    answer = SummaryAnswer(text=summary_text, model="m", finish_reason="stop")
    made = finish(plan, [answer for _ in plan.tasks], estimated_tokens)
    assert isinstance(made, Compaction), made
    return asked.model_copy(update={"carry": Carry().with_compaction(made)})


def test_a_summary_that_lost_a_constraint_is_cured_by_one_that_says_it() -> None:
    incident = Incident(
        IncidentClass.LOSSY_COMPACTION,
        "answer",
        compacted("The user asked about exports and was told the rules that hold for them."),
        COMPACTING,
        COMPACTING,
        dropped("answer", DropReason.COMPACTED),
        (*SCOPE_CASES, "before_compaction"),
        compacted("The user asked about exports. The window closes at 14:00 on Fridays."),
    )
    made = incident.build(says=["closes at 14:00 on Fridays"])
    own = made.cases[0].expectation
    assert own.items == (incident.expected,)
    assert [case.name for case in made.cases[1:]] == list(incident.neighbours)
    assert str(violations(made.request, COMPACTING, COUNTER, own)[0]) == (
        "expected a packet that says 'closes at 14:00 on Fridays', got none that does"
    )
    with pytest.raises(UsageError, match="The old policy 'compacting' passes"):
        incident.build(says=["exports"])
    with pytest.raises(UsageError, match="answer: expected selected, got dropped"):
        incident.build()


def test_an_overflow_is_cured_by_a_policy_that_masks() -> None:
    later = ContextItem(id="later", payload=UserTurn(text="And now?"))
    reply = ContextItem(id="reply", payload=AssistantTurn(text="Done."))
    call = ToolCall(id="c2", name="export", arguments="{}")
    step = ToolStep(calls=(call,), results=(ToolResult(call_id="c2", content="2 rows"),))
    log = (*output("row " * 2000), reply, later, ContextItem(id="second-step", payload=step))
    masking = ContextPolicy(name="masking", masking=MaskingLimits(threshold=100))
    made = Incident(
        IncidentClass.TOOL_OUTPUT_OVERFLOW,
        "export-step",
        request(history=log),
        DEFAULT,
        masking,
        selected("export-step"),
        (*SCOPE_CASES, "short_outputs"),
    ).build()
    report = check_regression(made, COUNTER)
    assert report.passed
    assert not check_regression(made, COUNTER, DEFAULT).passed


def test_a_tool_that_was_offered_too_early_is_cured_by_its_stage() -> None:
    spec = ToolSpec(name="rotate_key", description="Rotate.", parameters={"type": "object"})
    tool = ContextItem(
        id="tool:rotate_key", payload=ToolContract(spec=spec, authority=Authority.CONSEQUENTIAL)
    )
    leak, cured = (
        request(tools=(tool,), state=state) for state in (TaskState(), TaskState(stage=Stage.ACTION))
    )
    made = Incident(
        IncidentClass.PERMISSION_LEAK,
        "tool:rotate_key",
        leak,
        DEFAULT,
        DEFAULT,
        dropped("tool:rotate_key", DropReason.TOOL_NOT_IN_STAGE),
        (*SCOPE_CASES, "harmless"),
        cured,
    ).build()
    assert made.cases[0].expectation.items == (dropped("tool:rotate_key", DropReason.TOOL_NOT_IN_STAGE),)
    assert [case.name for case in made.cases[1:]] == [*SCOPE_CASES, "harmless"]


def test_a_regression_whose_old_policy_passes_now_proves_nothing_and_says_so() -> None:
    made = BY_CLASS[IncidentClass.POISONED_DOCUMENT].build()
    idle = made.model_copy(update={"old_policy": DEFAULT})
    report = check_regression(idle, COUNTER)
    assert not report.recognised
    assert not report.passed
    assert not any(case.violations for case in report.cases)
