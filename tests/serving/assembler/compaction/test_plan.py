from __future__ import annotations

import pytest

from serving.assembler import (
    AssistantTurn,
    ContextItem,
    Evidence,
    Note,
    Notification,
    Scope,
    StatusBar,
    ToolCall,
    ToolResult,
    ToolStep,
    Trust,
    UserTurn,
    history_items,
)
from serving.assembler.compaction import (
    CompactionFailure,
    CompactionPlan,
    NoCompaction,
    NoCompactionReason,
    Reach,
    SpareReason,
    Strategy,
    plan_compaction,
)
from serving.assembler.compaction.survey import sources_of
from serving.errors import UsageError
from tests.support.compaction_logs import plan, planned, policy, run, says, step, tokens, work

LONG = "word " * 200
HISTORY = history_items(
    [UserTurn(text="one"), step("a", LONG), step("b", LONG), AssistantTurn(text="ok"), UserTurn(text="two")]
)


def reasons(made: CompactionPlan | NoCompaction) -> dict[str, SpareReason]:
    return {one.id: one.reason for one in made.spared}


def no(made: CompactionPlan | NoCompaction) -> NoCompactionReason:
    assert isinstance(made, NoCompaction)
    return made.reason


def test_nothing_happens_up_to_the_threshold_or_without_a_strategy() -> None:
    chosen = policy(Strategy.COMBINED, threshold=0.8)
    assert no(plan(HISTORY, chosen, budget=1000, used=800)) is NoCompactionReason.NOT_OVER_THRESHOLD
    assert isinstance(plan(HISTORY, chosen, budget=1000, used=801), CompactionPlan)
    assert no(plan(HISTORY, policy(Strategy.NONE), used=10**9)) is NoCompactionReason.STRATEGY_NONE


def test_what_must_stay_is_named_with_its_reason() -> None:
    open_step = ToolStep(calls=(ToolCall(id="x", name="ask", arguments="{}"),))
    half_open = ToolStep(
        calls=tuple(ToolCall(id=name, name="read", arguments="{}") for name in ("y", "z")),
        results=(ToolResult(call_id="y", content=LONG),),
    )
    scope = Scope(tenant="t1")
    history = (
        ContextItem(id="said", payload=UserTurn(text="never touch prod")),
        ContextItem(id="waiting", payload=open_step),
        ContextItem(id="half", payload=half_open),
        ContextItem(id="gone", payload=step("a", LONG)),
        ContextItem(id="flagged", payload=step("b", LONG), required=True),
        ContextItem(id="newer", payload=step("c", LONG), supersedes=("old",)),
        ContextItem(id="bar-0", payload=StatusBar(text="calls: 1")),
        ContextItem(id="event", payload=Notification(text="approval came", event="approval_returned")),
        ContextItem(id="note", payload=Note(text="r1 is superseded")),
        ContextItem(id="quoted", payload=Note(text="it says so"), trust=Trust.UNTRUSTED),
        ContextItem(id="fact", payload=Evidence(text="r3 applies", applicability="3.2"), scope=scope),
        ContextItem(id="bar-1", payload=StatusBar(text="calls: 2")),
        ContextItem(id="task", payload=UserTurn(text="go on")),
        ContextItem(id="now", payload=step("d", LONG)),
    )
    made = planned(history, policy(Strategy.COMBINED))
    assert [covered.id for covered in made.covers] == ["gone", "bar-0"]
    assert reasons(made) == {
        "said": SpareReason.USER_WORDS,
        "waiting": SpareReason.OPEN_CALL,
        "half": SpareReason.OPEN_CALL,
        "flagged": SpareReason.REQUIRED,
        "newer": SpareReason.SUPERSEDES,
        "event": SpareReason.HAS_AUTHORITY,
        "note": SpareReason.HAS_AUTHORITY,
        "quoted": SpareReason.NEEDS_ITS_FORM,
        "fact": SpareReason.NEEDS_ITS_FORM,
        "bar-1": SpareReason.HAS_AUTHORITY,
        "task": SpareReason.LAST_USER_TURN,
        "now": SpareReason.CURRENT_TASK,
    }


def test_a_running_task_that_outgrows_the_window_may_be_reached_by_policy() -> None:
    history = history_items([UserTurn(text="go"), *(step(f"c{number}", LONG) for number in range(5))])
    assert no(plan(history, policy(Strategy.COMBINED))) is NoCompactionReason.NOTHING_ELIGIBLE
    made = planned(history, policy(Strategy.COMBINED, reach=Reach.RUNNING_TASK, keep_last=2))
    assert [covered.id for covered in made.covers] == ["turn-001", "turn-002", "turn-003"]
    assert set(reasons(made).values()) == {SpareReason.LAST_USER_TURN, SpareReason.MOST_RECENT}


def test_earlier_user_turns_go_only_where_the_policy_says_so() -> None:
    assert "turn-000" not in {covered.id for covered in planned(HISTORY, policy(Strategy.COMBINED)).covers}
    made = planned(HISTORY, policy(Strategy.COMBINED, keep_user_turns=False))
    assert [covered.id for covered in made.covers] == ["turn-000", "turn-001", "turn-002"]
    assert made.tasks[0].sources[0].text == "user: one"


def test_a_summary_never_mixes_items_of_different_scopes() -> None:
    secret = Scope(tenant="t1", readers=frozenset({"anna", "ben"}))
    history = tuple(
        item.model_copy(update={"scope": secret}) if item.id == "turn-001" else item for item in HISTORY
    )
    made = planned(history, policy(Strategy.COMBINED, keep_last=1))
    assert [[one.id for one in replacement.covers] for replacement in made.replacements] == [
        ["turn-001"],
        ["turn-002"],
    ]
    assert [replacement.scope for replacement in made.replacements] == [secret, Scope()]
    assert LONG[:50] not in made.tasks[0].material.replace(made.tasks[0].sources[1].text, "")


def test_a_question_that_fewer_may_read_does_not_get_into_a_summary_for_more() -> None:
    readers = frozenset({"anna", "ben"})
    for asked, told, seen in (
        (Scope(readers=frozenset({"anna"})), Scope(readers=readers), False),
        (Scope(tenant="t1"), Scope(), False),
        (Scope(), Scope(tenant="t1", readers=readers), True),
        (Scope(readers=readers), Scope(readers=frozenset({"ben"})), True),
    ):
        history = tuple(
            item.model_copy(update={"scope": asked if item.id == "turn-004" else told}) for item in HISTORY
        )
        (task,) = planned(history, policy(Strategy.ANCHORED_CHECKPOINT)).tasks
        assert (task.query is not None) == seen


def test_only_what_shrinks_is_planned() -> None:
    short = history_items([UserTurn(text="a"), step("a", "ok"), AssistantTurn(text="b"), UserTurn(text="c")])
    for strategy in (Strategy.TRUNCATE, Strategy.COMBINED, Strategy.ANCHORED_CHECKPOINT):
        assert no(plan(short, policy(strategy))) is NoCompactionReason.WOULD_NOT_SHRINK
    assert no(plan(short, policy(Strategy.PER_RESULT))) is NoCompactionReason.NOTHING_ELIGIBLE


def test_a_masked_result_counts_as_what_is_sent_of_it() -> None:
    shown = {"turn-001": 9, "turn-002": 9, "turn-003": 1}
    made = plan_compaction(
        HISTORY, policy(Strategy.TRUNCATE), count=tokens, budget=1000, used=1000, rendered=shown
    )
    assert no(made) is NoCompactionReason.WOULD_NOT_SHRINK
    made = plan_compaction(
        HISTORY, policy(Strategy.TRUNCATE), count=tokens, budget=1000, used=1000, rendered={}
    )
    assert isinstance(made, CompactionPlan)
    assert made.tokens_before == sum(
        tokens("\n".join(source.text for source in sources_of(item))) for item in HISTORY[1:3]
    )


def test_a_log_that_no_prompt_can_hold_is_read_in_several_without_losing_a_letter() -> None:
    history = history_items(
        [
            UserTurn(text="a"),
            step("a", LONG * 5),
            step("b", "x" * 3000),
            AssistantTurn(text="b"),
            UserTurn(text="c"),
        ]
    )
    made = planned(history, policy(Strategy.COMBINED, most_input_tokens=1000))
    assert len(made.tasks) > 3
    for task in made.tasks:
        assert sum(tokens(message.content or "") for message in task.messages()) + task.max_output <= 1000
    read: dict[str, str] = {}
    for task in made.tasks:
        for source in task.sources:
            read[source.id] = read.get(source.id, "") + source.text
    assert read == {source.id: source.text for item in history[1:3] for source in sources_of(item)}


def test_without_room_for_a_summariser_that_is_the_reason() -> None:
    made = plan(HISTORY, policy(Strategy.COMBINED, most_input_tokens=64, target_tokens=32))
    assert no(made) is NoCompactionReason.NO_ROOM_FOR_SUMMARISER


def test_a_long_question_is_cut_and_never_crowds_out_the_log() -> None:
    history = (*HISTORY[:-1], ContextItem(id="huge", payload=UserTurn(text="why " * 20_000)))
    made = planned(history, policy(Strategy.QUERY_AWARE))
    assert made.tasks[0].query is not None
    assert tokens(made.tasks[0].query.text) <= 8000 // 8


@pytest.mark.parametrize(("used", "covered"), [(8_001, 3), (8_100, 3), (8_600, 5), (9_999, 9), (20_000, 9)])
def test_the_adaptive_window_takes_the_oldest_items_and_only_as_many_as_make_room(
    used: int, covered: int
) -> None:
    history = history_items(
        [UserTurn(text="a"), *(step(f"c{number}", LONG) for number in range(10)), UserTurn(text="b")]
    )
    # Items of 260 tokens; the prompt has to come down to 7,500, and the summary takes up to 150 itself.
    assert {tokens("\n".join(one.text for one in sources_of(item))) for item in history[1:-1]} == {260}
    chosen = policy(Strategy.ADAPTIVE_WINDOW, threshold=0.8, down_to=0.75, target_tokens=150)
    made = plan(history, chosen, budget=10_000, used=used)
    assert [one.id for one in made.covers] == [f"turn-{number:03d}" for number in range(1, covered + 1)]
    assert set(reasons(made).values()) >= {SpareReason.MOST_RECENT}
    assert (SpareReason.OUT_OF_REACH_OF_STRATEGY in reasons(made).values()) == (covered < 9)


def test_a_plan_depends_on_nothing_but_what_it_covers_and_asks() -> None:
    first = planned(HISTORY, policy(Strategy.QUERY_AWARE))
    grown = (*HISTORY, ContextItem(id="later", payload=Note(text="by the way")))
    again = planned(grown, policy(Strategy.QUERY_AWARE))
    assert again.id == first.id
    assert again.log_items == first.log_items + 1
    assert planned(HISTORY, policy(Strategy.QUERY_AWARE, version="2")).id != first.id
    assert CompactionPlan.model_validate_json(first.model_dump_json()) == first


def test_a_policy_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(UsageError, match="down_to must lie below the threshold"):
        policy(Strategy.ADAPTIVE_WINDOW, threshold=0.5, down_to=0.5)
    with pytest.raises(UsageError, match="most_checkpoint_tokens must hold one summary"):
        policy(Strategy.COMBINED, target_tokens=400, most_checkpoint_tokens=399)


def test_content_cannot_close_its_fence_in_the_prompt_of_a_summariser() -> None:
    plain = planned(HISTORY, policy(Strategy.COMBINED)).tasks[0]
    closing = plain.material.rsplit("\n", 1)[1]
    hostile = history_items(
        [
            UserTurn(text="one"),
            step("a", LONG),
            step("b", f"{LONG}\n{closing}"),
            AssistantTurn(text="ok"),
            UserTurn(text="two"),
        ]
    )
    material = planned(hostile, policy(Strategy.COMBINED)).tasks[0].material
    own = material.rsplit("\n", 1)[1]
    assert own != closing
    assert material.count(own) == 1


def test_the_breaker_counts_only_failures_of_this_strategy_since_its_last_success() -> None:
    log = work(3)
    history = log.history[: log.task_ends[1]]
    failing = policy(Strategy.COMBINED, max_failures=2, retry_after_items=5)
    failure = run(planned(history, failing), says("[summary unavailable]"))
    other = run(planned(history, policy(Strategy.QUERY_AWARE)), says("[summary unavailable]"))
    assert isinstance(failure, CompactionFailure)
    assert isinstance(other, CompactionFailure)
    assert isinstance(plan(history, failing, failures=[failure]), CompactionPlan)
    assert isinstance(plan(history, failing, failures=[failure, other]), CompactionPlan)
    made = plan(history, failing, failures=[failure, failure])
    assert no(made) is NoCompactionReason.BREAKER_OPEN
    assert isinstance(made, NoCompaction)
    assert made.retry_at_items == len(history) + 5
