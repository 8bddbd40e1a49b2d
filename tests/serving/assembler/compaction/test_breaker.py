from __future__ import annotations

import pytest

from serving.assembler.compaction import Compaction, CompactionFailure, Strategy, call_failed
from serving.assembler.compaction.breaker import retry_at
from tests.support.compaction_logs import compacted, planned, policy, work

LOG = work(2)
CHOSEN = policy(Strategy.COMBINED, max_failures=2, retry_after_items=5)
PLAN = planned(LOG.history, CHOSEN)


def failed(at: int, version: str = "1", strategy: Strategy = Strategy.COMBINED) -> CompactionFailure:
    failure = call_failed(PLAN, "The server was silent for 60 s.")
    return failure.model_copy(update={"log_items": at, "strategy_version": version, "strategy": strategy})


def succeeded(at: int, strategy: Strategy = Strategy.COMBINED) -> Compaction:
    return compacted(LOG.history, policy(strategy)).model_copy(update={"log_items": at})


@pytest.mark.parametrize(
    ("failures", "log_items", "due"),
    [
        ([], 10, None),
        ([failed(10)], 10, None),
        ([failed(10), failed(10)], 10, 15),
        ([failed(10), failed(10)], 14, 15),
        ([failed(10), failed(10)], 15, None),
        ([failed(10), failed(10), failed(15)], 15, 20),
        ([failed(15), failed(10), failed(10)], 19, 20),
        ([failed(10), failed(10), failed(15)], 20, None),
        ([failed(10), failed(10, version="0")], 10, None),
        ([failed(10), failed(10, strategy=Strategy.QUERY_AWARE)], 10, None),
    ],
)
def test_it_opens_after_so_many_failures_and_lets_one_try_through_as_the_log_grows(
    failures: list[CompactionFailure], log_items: int, due: int | None
) -> None:
    assert retry_at(CHOSEN, "1", log_items, [], failures) == due


def test_a_success_closes_it_and_a_success_of_another_strategy_does_not() -> None:
    failures = [failed(10), failed(10)]
    assert retry_at(CHOSEN, "1", 12, [succeeded(12)], failures) is None
    assert retry_at(CHOSEN, "1", 12, [succeeded(12, Strategy.QUERY_AWARE)], failures) == 15
    assert retry_at(CHOSEN, "1", 12, [succeeded(12)], [*failures, failed(12)]) is None
    assert retry_at(CHOSEN, "1", 12, [succeeded(12)], [*failures, failed(12), failed(12)]) == 17


def test_failures_at_the_length_of_the_last_success_count() -> None:
    """Else success and failure could take turns without end over a log that stands still."""
    assert retry_at(CHOSEN, "1", 10, [succeeded(10)], [failed(10), failed(10)]) == 15
