from __future__ import annotations

import pytest

from serving.assembler import AssistantTurn, ContextItem, Note, UserTurn, history_items
from serving.assembler.compaction import (
    Outcome,
    Probe,
    ProbeKind,
    Scores,
    Strategy,
    apply_compactions,
    grade,
    scores,
)
from serving.errors import UsageError
from tests.support.compaction_logs import (
    MODEL_STRATEGIES,
    STRATEGIES,
    compacted,
    cycles,
    policy,
    says,
    size,
    step,
    work,
)

HISTORY = history_items(
    [
        UserTurn(text="one"),
        step("a", "port 7001 answers. " + "all quiet here. " * 60),
        AssistantTurn(text="ok"),
        UserTurn(text="two"),
    ]
)


def outcome(probe: Probe, strategy: Strategy, text: str) -> Outcome:
    return grade(HISTORY, [compacted(HISTORY, policy(strategy), says(text))], [probe])[0].outcome


def test_a_fact_in_a_summary_counts_with_its_source_only_where_that_is_named() -> None:
    asked = Probe(kind=ProbeKind.CLAIM_SOURCE, needles=("7001",), source="turn-001#a")
    plain = asked.model_copy(update={"source": None})
    two = (*HISTORY[:2], ContextItem(id="more", payload=step("b", "all quiet here. " * 60)), *HISTORY[2:])
    made = compacted(two, policy(Strategy.COMBINED), says("port 7001 answers"))
    assert [one.outcome for one in grade(two, [made], [asked, plain])] == [
        Outcome.SOURCE_LOST,
        Outcome.SUMMARISED,
    ]
    assert outcome(asked, Strategy.QUERY_AWARE_SOURCES, "- port 7001 answers [s2]") is Outcome.SUMMARISED
    assert outcome(asked, Strategy.QUERY_AWARE_SOURCES, "- all quiet here [s2]") is Outcome.LOST
    assert grade(HISTORY, [], [asked])[0].outcome is Outcome.VERBATIM


def test_a_claim_that_cites_another_entry_has_lost_its_source() -> None:
    history = (
        *HISTORY[:2],
        ContextItem(id="s2", payload=step("b", "port 7001 answers. " * 40)),
        *HISTORY[2:],
    )
    asked = Probe(kind=ProbeKind.CLAIM_SOURCE, needles=("7001",), source="turn-001")
    made = compacted(history, policy(Strategy.QUERY_AWARE_SOURCES), says("- port 7001 answers [s4]"))
    assert grade(history, [made], [asked])[0].outcome is Outcome.SOURCE_LOST


def test_a_decision_without_its_reason_is_lost() -> None:
    asked = Probe(kind=ProbeKind.REJECTED_DECISION, needles=("7001", "quiet"))
    assert outcome(asked, Strategy.COMBINED, "port 7001 answers") is Outcome.LOST
    assert outcome(asked, Strategy.COMBINED, "port 7001 answers, all quiet") is Outcome.SUMMARISED


def test_a_probe_that_the_log_does_not_answer_is_refused() -> None:
    for probe in (
        Probe(kind=ProbeKind.CHANGED_FILE, needles=("a.py",)),
        Probe(kind=ProbeKind.CLAIM_SOURCE, needles=("7001",), source="turn-002"),
    ):
        with pytest.raises(UsageError, match="is not there before any compaction"):
            grade(HISTORY, [], [probe])


def test_text_that_is_no_turn_is_read_too() -> None:
    history = (*HISTORY, ContextItem(id="n", payload=Note(text="rule R-9")))
    probe = Probe(kind=ProbeKind.RARE_CONSTRAINT, needles=("R-9",), source="n")
    assert grade(history, [], [probe])[0].answered


def compared(target_tokens: int) -> dict[Strategy, tuple[float, Scores]]:
    """Size after / size before, and what is still known, after five cycles with the extractive stand-in."""
    log = work(5)
    table = {}
    for strategy in STRATEGIES:
        done = cycles(log.history, log.task_ends, policy(strategy, target_tokens=target_tokens))
        assert len(done) == 5
        share = size(apply_compactions(log.history, done)) / size(log.history)
        table[strategy] = (share, scores(grade(log.history, done, log.probes)))
        row = " ".join(f"{kind.value} {value:.2f}" for kind, value in table[strategy][1].items())
        print(f"{target_tokens:4} {strategy.value:20} after/before {share:.2f}  {row}")
    return table


def test_the_strategies_compared_on_one_piece_of_work() -> None:
    """Run with `-s` to read the table."""
    tight, roomy = compared(96), compared(400)
    for table in (tight, roomy):
        # The goal is a user turn, which stays; the honest baseline keeps nothing else.
        assert table[Strategy.TRUNCATE][1] == {
            kind: 1.0 if kind is ProbeKind.CURRENT_GOAL else 0.0 for kind in ProbeKind
        }
        for strategy in MODEL_STRATEGIES:
            share, known = table[strategy]
            assert 0.1 < share < 0.8
            assert sum(known.values()) > 4
        # Prose cannot say where a claim is from.
        for strategy in (Strategy.COMBINED, Strategy.QUERY_AWARE):
            assert table[strategy][1][ProbeKind.CLAIM_SOURCE] == 0.0
    for strategy in (Strategy.QUERY_AWARE_SOURCES, Strategy.ADAPTIVE_WINDOW, Strategy.ANCHORED_CHECKPOINT):
        assert roomy[strategy][1][ProbeKind.CLAIM_SOURCE] == 1.0
        assert tight[strategy][1][ProbeKind.CLAIM_SOURCE] < 1.0
        assert tight[strategy][0] < roomy[strategy][0]
