from __future__ import annotations

from itertools import pairwise

import pytest

from serving.assembler import AssistantTurn, ContextItem, UserTurn, history_items
from serving.assembler.compaction import (
    Compaction,
    CompactionFailure,
    Form,
    RefusalReason,
    Strategy,
    SummaryTask,
    apply_compactions,
    extractive,
)
from serving.assembler.compaction.strategies import strategy_named
from serving.assembler.compaction.strategies.anchored_checkpoint import Section
from serving.assembler.payloads import Summary
from tests.support.compaction_logs import (
    MODEL_STRATEGIES,
    compacted,
    cycles,
    plan,
    planned,
    policy,
    run,
    says,
    size,
    step,
    tokens,
    work,
)

LOG = work(4)
EMPTY = "\n".join(f"## {section.value}\nnone" for section in Section)


def payload(made: Compaction) -> Summary:
    found = made.items[0].payload
    assert isinstance(found, Summary)
    return found


def checkpoint(**lines: str) -> str:
    """An answer in checkpoint form, with these lines under these sections."""
    return "\n".join(f"## {section.value}\n{lines.get(section.name.lower(), 'none')}" for section in Section)


def test_every_strategy_is_there_under_its_own_name() -> None:
    for name in Strategy:
        assert strategy_named(name).name is name


@pytest.mark.parametrize(
    ("strategy", "form", "sees_query"),
    [
        (Strategy.PER_RESULT, Form.PROSE, False),
        (Strategy.COMBINED, Form.PROSE, False),
        (Strategy.QUERY_AWARE, Form.PROSE, True),
        (Strategy.QUERY_AWARE_SOURCES, Form.FACTS, True),
        (Strategy.ADAPTIVE_WINDOW, Form.FACTS, True),
        (Strategy.ANCHORED_CHECKPOINT, Form.CHECKPOINT, True),
    ],
)
def test_what_a_summariser_is_told_and_in_which_form_it_answers(
    strategy: Strategy, form: Form, sees_query: bool
) -> None:
    for task in planned(LOG.history, policy(strategy)).tasks:
        assert task.form is form
        assert ("go on with the migration" in task.material) == sees_query
        assert f"at most {task.max_output} tokens" in task.instruction
        system, user = task.messages()
        assert (system.role, user.role) == ("system", "user")
        assert "They are data" in (system.content or "")


def test_without_a_question_of_the_user_the_query_aware_ones_ask_without_it() -> None:
    history = history_items([step("a", "all quiet here. " * 100), step("b", "x"), AssistantTurn(text="ok")])
    for strategy in (Strategy.QUERY_AWARE, Strategy.QUERY_AWARE_SOURCES, Strategy.ANCHORED_CHECKPOINT):
        made = planned(history, policy(strategy))
        assert made.tasks[0].query is None
        assert isinstance(run(made), Compaction)


def test_truncation_asks_nobody() -> None:
    made = planned(LOG.history, policy(Strategy.TRUNCATE))
    assert made.tasks == ()
    result = run(made)
    assert isinstance(result, Compaction)
    assert result.calls == ()


def test_per_result_keeps_the_calls_and_short_results_in_their_own_words() -> None:
    made = compacted(LOG.history, policy(Strategy.PER_RESULT))
    text = payload(made).text
    assert text.startswith('call read: {"of": "c0_a"}\nsummary of turn-001#c0_a:\n')
    covered = {one.id for one in made.covers}
    assert "turn-001" in covered
    assert "turn-004" not in covered, "a result of one line is not worth a question"


def test_per_result_summarises_parallel_results_one_by_one() -> None:
    long = step("a", "verified: port 7001 answers. " * 40)
    both = long.model_copy(
        update={
            "calls": (*long.calls, *step("b", "").calls, *step("c", "").calls),
            "results": (
                *step("c", "verified: port 7003 answers. " * 40).results,
                *step("b", "short").results,
                *long.results,
            ),
        }
    )
    history = history_items([UserTurn(text="one"), both, AssistantTurn(text="ok"), UserTurn(text="two")])
    made = planned(history, policy(Strategy.PER_RESULT))
    assert [[source.id for source in task.sources] for task in made.tasks] == [["turn-001#a"], ["turn-001#c"]]
    result = run(made)
    assert isinstance(result, Compaction)
    lines = payload(result).text.splitlines()
    places = [
        lines.index(line)
        for line in (
            "short",
            "summary of turn-001#a:",
            "verified: port 7001 answers.",
            "summary of turn-001#c:",
            "verified: port 7003 answers.",
        )
    ]
    assert places == sorted(places)


def test_query_aware_picks_what_the_question_is_about() -> None:
    history = history_items(
        [
            UserTurn(text="hello"),
            step(
                "a",
                "the harbour crane lifts containers. " + "the garden has roses and tulips. " + "x. " * 200,
            ),
            AssistantTurn(text="ok"),
            UserTurn(text="Which flowers grow in the garden?"),
        ]
    )
    chosen = policy(Strategy.QUERY_AWARE, target_tokens=32)
    assert "garden" in payload(compacted(history, chosen)).text
    assert "crane" not in payload(compacted(history, chosen)).text


def test_a_checkpoint_has_all_its_sections_in_order() -> None:
    lines = payload(compacted(LOG.history, policy(Strategy.ANCHORED_CHECKPOINT))).text.splitlines()
    assert [line for line in lines if line.startswith("## ")] == [
        f"## {section.value}" for section in Section
    ]


@pytest.mark.parametrize("section", list(Section))
def test_a_checkpoint_without_one_of_its_sections_is_refused(section: Section) -> None:
    made = planned(LOG.history, policy(Strategy.ANCHORED_CHECKPOINT))
    text = checkpoint(completed="- queue 0 is done [s1]").replace(f"## {section.value}\n", "")
    result = run(made, says(text))
    assert isinstance(result, CompactionFailure)
    assert result.reason is RefusalReason.MISSING_SECTION
    assert section.value in result.refused[0].detail


def test_a_checkpoint_that_says_nothing_is_refused() -> None:
    result = run(planned(LOG.history, policy(Strategy.ANCHORED_CHECKPOINT)), says(EMPTY))
    assert isinstance(result, CompactionFailure)
    assert result.reason is RefusalReason.WRONG_FORM


def test_earlier_lines_of_a_checkpoint_never_drift() -> None:
    done = cycles(LOG.history, LOG.task_ends, policy(Strategy.ANCHORED_CHECKPOINT))
    assert len(done) == 4
    claims = [payload(made).claims for made in done]
    latest = {Section.TESTS.value, Section.NEXT_STEP.value}
    for earlier, later in pairwise(claims):
        kept = [claim for claim in earlier if claim.section not in latest]
        assert [claim for claim in later if claim in kept] == kept
    assert {claim.text for claim in claims[-1] if claim.section == Section.NEXT_STEP} == {
        "Next step: run migrate_3.py on db-3."
    }


def test_the_next_checkpoint_reads_the_earlier_one_and_stands_for_all_that_it_stood_for() -> None:
    chosen = policy(Strategy.ANCHORED_CHECKPOINT)
    first = run(planned(LOG.history[: LOG.task_ends[1]], chosen))
    assert isinstance(first, Compaction)
    made = plan(LOG.history, chosen, done=[first])
    assert made.tasks[0].earlier is not None
    assert made.tasks[0].earlier.text == payload(first).text
    assert made.covers[0].id == first.items[0].id
    second = run(made)
    assert isinstance(second, Compaction)
    assert set(payload(second).covers) > set(payload(first).covers)
    assert payload(second).covers[: len(payload(first).covers)] == payload(first).covers
    assert size(apply_compactions(LOG.history, [first, second])) < size(
        apply_compactions(LOG.history, [first])
    )


def test_a_checkpoint_that_nothing_came_after_is_left_alone() -> None:
    chosen = policy(Strategy.ANCHORED_CHECKPOINT)
    first = compacted(LOG.history, chosen)
    assert plan(LOG.history, chosen, done=[first]).reason == "nothing_eligible"


def test_a_new_line_may_cite_what_the_earlier_checkpoint_says_of_an_entry_and_no_more() -> None:
    chosen = policy(Strategy.ANCHORED_CHECKPOINT)
    first = run(planned(LOG.history[: LOG.task_ends[1]], chosen))
    assert isinstance(first, Compaction)
    made = plan(LOG.history, chosen, done=[first])
    known = next(claim for claim in payload(first).claims if "A-17" in claim.text)
    source = known.sources[0]
    good = run(made, says(checkpoint(risks=f"- approval A-17 is still pending [{source}]")))
    assert isinstance(good, Compaction)
    bad = run(made, says(checkpoint(risks=f"- approval A-18 is still pending [{source}]")))
    assert isinstance(bad, CompactionFailure)
    assert bad.reason is RefusalReason.UNSUPPORTED_WORD


def test_an_approval_stays_until_a_later_line_says_more() -> None:
    chosen = policy(Strategy.ANCHORED_CHECKPOINT)
    first = run(planned(LOG.history[: LOG.task_ends[1]], chosen))
    assert isinstance(first, Compaction)
    second = run(plan(LOG.history, chosen, done=[first]), says(checkpoint(completed="- it was done [s1]")))
    assert isinstance(second, Compaction)
    assert "approval A-17 is pending" in payload(second).text


def test_over_its_bound_a_checkpoint_gives_up_its_oldest_finished_work_and_says_so() -> None:
    log = work(10)
    chosen = policy(Strategy.ANCHORED_CHECKPOINT, most_checkpoint_tokens=720, target_tokens=400)
    done = cycles(log.history, log.task_ends, chosen)
    text = payload(done[-1]).text
    assert all(tokens(payload(made).text) <= 720 for made in done)
    assert text.count("earlier lines of this section are left out") in (1, 2)
    for number in range(8):
        assert f"approval A-{number + 17} is pending" in text
        assert f"Rejected SQLite for queue {number}" in text


def test_a_checkpoint_that_cannot_keep_its_bound_is_refused() -> None:
    made = planned(
        LOG.history, policy(Strategy.ANCHORED_CHECKPOINT, target_tokens=64, most_checkpoint_tokens=64)
    )
    text = checkpoint(rejected="\n".join(f"- it was tried {'again ' * n}[s1]" for n in range(12)))
    result = run(made, says(text))
    assert isinstance(result, CompactionFailure)
    assert result.reason is RefusalReason.TOO_LONG


@pytest.mark.parametrize("strategy", MODEL_STRATEGIES)
def test_the_extractive_summariser_is_accepted_and_changes_no_letter(strategy: Strategy) -> None:
    made = planned(LOG.history, policy(strategy))
    result = run(made)
    assert isinstance(result, Compaction)
    assert result.refused == ()
    read = "\n".join(source.text for task in made.tasks for source in task.sources)
    read += "\n".join(task.query.text for task in made.tasks if task.query is not None)
    for one in result.items:
        assert isinstance(one.payload, Summary)
        for claim in one.payload.claims:
            assert claim.text in read
    assert [extractive(task) for task in made.tasks] == [extractive(task) for task in made.tasks]
    assert {(call.model, call.prompt_tokens, call.output_tokens) for call in result.calls} == {
        ("extractive", 0, 0)
    }


def test_the_extractive_summariser_keeps_to_its_bound() -> None:
    for strategy in MODEL_STRATEGIES:
        for target in (32, 100, 400):
            for task in planned(LOG.history, policy(strategy, target_tokens=target)).tasks:
                text = extractive(task).text
                headings = EMPTY if task.form is Form.CHECKPOINT else ""
                goal = task.query.text if task.query is not None else ""
                assert tokens(text) <= task.max_output + tokens(headings) + tokens(goal) + 16


def test_the_extractive_summariser_never_cuts_a_word() -> None:
    source = "x" * 5000 + " then verified: " + "port 7001 answers and " * 40 + "y" * 5000
    history = (
        *history_items([UserTurn(text="one"), step("a", source), AssistantTurn(text="ok")]),
        ContextItem(id="last", payload=UserTurn(text="two")),
    )

    def words(task: SummaryTask) -> set[str]:
        return set(extractive(task).text.split())

    (task,) = planned(history, policy(Strategy.COMBINED)).tasks
    assert words(task) <= set(task.sources[1].text.split()) | set(task.sources[0].text.split())
    assert "7001" in words(task)
