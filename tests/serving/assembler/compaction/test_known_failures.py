"""Failures of other tools that concern compaction, each shown not to happen here."""

from __future__ import annotations

from itertools import pairwise

import pytest

from serving.assembler import (
    AssistantTurn,
    ContextItem,
    Notification,
    ToolCall,
    ToolStep,
    UserTurn,
    history_items,
)
from serving.assembler.compaction import (
    Compaction,
    CompactionFailure,
    CompactionPlan,
    NoCompaction,
    NoCompactionReason,
    RefusalReason,
    Strategy,
    SummaryAnswer,
    SummaryTask,
    apply_compactions,
    extractive,
)
from serving.assembler.payloads import Summary
from tests.support.compaction_logs import (
    MODEL_STRATEGIES,
    STRATEGIES,
    Summariser,
    compacted,
    everything,
    plan,
    planned,
    policy,
    run,
    says,
    size,
    step,
    work,
)

LOG = work(3)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_pending_call_is_not_compacted_away(strategy: Strategy) -> None:
    pending = ContextItem(
        id="pending",
        payload=ToolStep(calls=(ToolCall(id="deploy", name="deploy", arguments='{"to": "prod"}'),)),
    )
    event = ContextItem(
        id="event", payload=Notification(text="An approval request was answered.", event="approval_returned")
    )
    history = (*LOG.history[:5], pending, event, *LOG.history[5:])
    after = apply_compactions(history, [compacted(history, everything(strategy))])
    assert pending in after
    assert event in after


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_orphan_does_not_disable_compaction(strategy: Strategy) -> None:
    orphan = ContextItem(
        id="orphan", payload=ToolStep(calls=(ToolCall(id="lost", name="read", arguments="{}"),))
    )
    with_orphan = planned((*LOG.history[:2], orphan, *LOG.history[2:]), policy(strategy))
    without = planned(LOG.history, policy(strategy))
    assert with_orphan.covers == without.covers


def test_failures_do_not_disable_compaction_for_ever() -> None:
    log = work(6)
    chosen = policy(Strategy.COMBINED, max_failures=2, retry_after_items=7)
    failures: list[CompactionFailure] = []
    asked_at: list[int] = []
    for end in range(log.task_ends[0], len(log.history)):
        made = plan(log.history[:end], chosen, failures=failures)
        if isinstance(made, CompactionPlan):
            asked_at.append(end)
            failed = run(made, says("502 Bad Gateway"))
            assert isinstance(failed, CompactionFailure)
            failures.append(failed)
    # Twice until it opens, then once for every seven items more; the summariser that has recovered is heard.
    gaps = [after - before for before, after in pairwise(asked_at)]
    assert gaps[0] == 1
    assert set(gaps[1:]) == {7}
    assert len(gaps) > 3
    later = log.history[: asked_at[-1] + 7]
    made = plan(later, chosen, failures=failures)
    assert isinstance(made, CompactionPlan)
    done = run(made)
    assert isinstance(done, Compaction)
    grown = plan(log.history, chosen, done=[done], failures=failures)
    assert not isinstance(grown, NoCompaction) or grown.reason is not NoCompactionReason.BREAKER_OPEN


@pytest.mark.parametrize(
    "answer",
    [
        "Queue 0 is done. You must never edit the configuration by hand.",
        "Queue 0 is done. Users must not see ticket LH-4471.",
        "Queue 0 is done. Do not run the benchmark on weekdays.",
    ],
)
def test_a_summary_does_not_invent_a_constraint(answer: str) -> None:
    result = run(planned(LOG.history, policy(Strategy.COMBINED)), says(answer))
    assert isinstance(result, CompactionFailure)
    assert result.reason is RefusalReason.INVENTED_CONSTRAINT


@pytest.mark.parametrize(
    "answer",
    [
        "Queue 0 is done. The full transcript has been archived.",
        "Queue 0 is done; details are available in the archive.",
        "Queue 0 is done. Older results were saved to disk.",
    ],
)
def test_the_model_is_not_told_of_an_archive_that_was_never_written(answer: str) -> None:
    result = run(planned(LOG.history, policy(Strategy.COMBINED)), says(answer))
    assert isinstance(result, CompactionFailure)
    assert result.reason is RefusalReason.UNWRITTEN_ARCHIVE


def test_what_is_left_out_is_said_to_be_unknown_and_promised_nowhere() -> None:
    payload = compacted(LOG.history, policy(Strategy.TRUNCATE)).items[0].payload
    assert isinstance(payload, Summary)
    assert payload.text == "18 earlier entries are left out here; nothing more is known of the content."


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_written_during_a_compaction_is_not_lost(strategy: Strategy) -> None:
    before = LOG.history[: LOG.task_ends[1]]
    made = planned(before, policy(strategy))
    later = (*LOG.history, ContextItem(id="later", payload=step("z", "a late result")))
    result = run(made)
    assert isinstance(result, Compaction)
    after = apply_compactions(later, [result])
    assert after[-(len(later) - len(before)) :] == later[len(before) :]


@pytest.mark.parametrize("strategy", MODEL_STRATEGIES)
@pytest.mark.parametrize(
    ("right", "wrong"),
    [("A-17", "A-71"), ("0007c0ffee", "0007c0fee"), ("port 7000", "port 7007"), ("for 310 ms", "for 31 ms")],
)
def test_numbers_and_ids_are_not_corrupted_by_compression(strategy: Strategy, right: str, wrong: str) -> None:
    made = planned(LOG.history, policy(strategy, target_tokens=2000))

    def typo(task: SummaryTask) -> SummaryAnswer:
        answer = extractive(task)
        return answer.model_copy(update={"text": answer.text.replace(right, wrong)})

    answers = [typo(task).text for task in made.tasks]
    if not any(wrong in text for text in answers):
        assert strategy is Strategy.PER_RESULT, "short results stay verbatim there"
        return
    result = run(made, typo)
    refused = result.refused
    assert {one.reason for one in refused} == {RefusalReason.UNSUPPORTED_WORD}
    if isinstance(result, Compaction):
        assert not any(wrong in item.content_json for item in result.items)


def test_a_message_larger_than_the_window_does_not_loop_for_ever() -> None:
    huge = ContextItem(id="huge", payload=UserTurn(text="why " * 50_000))
    history = (*LOG.history, huge)
    for strategy in STRATEGIES:
        done: list[Compaction] = []
        reasons: list[NoCompactionReason] = []
        for _ in range(8):
            made = plan(history, policy(strategy), done=done, used=50_000)
            if isinstance(made, NoCompaction):
                reasons.append(made.reason)
                break
            result = run(made)
            assert isinstance(result, Compaction)
            done.append(result)
        assert reasons == [NoCompactionReason.NOTHING_ELIGIBLE]
        assert len(done) <= 2
        assert huge in apply_compactions(history, done)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_result_larger_than_the_window_is_read_in_pieces_and_gone_after_one_compaction(
    strategy: Strategy,
) -> None:
    history = history_items(
        [
            UserTurn(text="one"),
            step("a", "verified: port 7001 answers. " + "all quiet here today. " * 10_000),
            AssistantTurn(text="ok"),
            UserTurn(text="two"),
        ]
    )
    made = planned(history, policy(strategy), budget=4000)
    result = run(made)
    assert isinstance(result, Compaction)
    assert size(apply_compactions(history, [result])) < 4000


def test_a_summariser_that_only_ever_fails_is_asked_a_bounded_number_of_times_while_the_log_stands_still() -> (
    None
):
    answers: list[Summariser] = [
        says(""),
        says("I'm sorry."),
        says("word " * 20_000),
        says("port 9999 answers"),
    ]
    for strategy in MODEL_STRATEGIES:
        chosen = policy(strategy, max_failures=3)
        failures: list[CompactionFailure] = []
        for attempt in range(50):
            made = plan(LOG.history, chosen, failures=failures)
            if isinstance(made, NoCompaction):
                assert made.reason is NoCompactionReason.BREAKER_OPEN
                break
            failed = run(made, answers[attempt % len(answers)])
            assert isinstance(failed, CompactionFailure)
            failures.append(failed)
        assert len(failures) == 3


def test_what_a_provider_made_opaque_is_never_parsed() -> None:
    opaque = '{"type":"reasoning.encrypted","data":"gAAAA\\u0000==' + "A1b2" * 200
    turns = [UserTurn(text="go"), AssistantTurn(text="ok", reasoning=opaque), step("a", opaque)]
    history = (
        *history_items(turns),
        ContextItem(id="b", payload=ToolStep(calls=(ToolCall(id="b", name="x", arguments="{not json"),))),
        ContextItem(id="c", payload=AssistantTurn(text="done")),
        ContextItem(id="d", payload=UserTurn(text="next")),
    )
    for strategy in STRATEGIES:
        made = planned(history, everything(strategy))
        read = "".join(source.text for task in made.tasks for source in task.sources)
        assert opaque in read or strategy is Strategy.TRUNCATE
        run(made)
