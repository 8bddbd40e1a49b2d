from __future__ import annotations

from itertools import permutations

import pytest

from serving.assembler import ContextItem, Kind, UserTurn
from serving.assembler.compaction import Compaction, Strategy, apply_compactions
from serving.errors import UsageError
from tests.support.compaction_logs import compacted, cycles, everything, policy, step, work

LOG = work(3)


def test_a_summary_stands_at_the_place_of_the_first_item_that_it_covers() -> None:
    made = compacted(LOG.history, policy(Strategy.COMBINED))
    after = apply_compactions(LOG.history, [made])
    assert after[0] == LOG.history[0]
    assert after[1] == made.items[0]
    covered = {one.id for one in made.covers}
    assert [item for item in after if item.kind is not Kind.SUMMARY] == [
        item for item in LOG.history if item.id not in covered
    ]


def test_per_result_summaries_stand_where_their_steps_stood() -> None:
    made = compacted(LOG.history, policy(Strategy.PER_RESULT))
    after = apply_compactions(LOG.history, [made])
    assert len(after) == len(LOG.history)
    places = {item.id: index for index, item in enumerate(LOG.history)}
    for one in made.replaced:
        assert after[places[one.covers[0].id]] == one.item


@pytest.mark.parametrize("strategy", [Strategy.COMBINED, Strategy.ANCHORED_CHECKPOINT, Strategy.PER_RESULT])
def test_applying_twice_or_in_another_order_changes_nothing(strategy: Strategy) -> None:
    done = cycles(LOG.history, LOG.task_ends, policy(strategy))
    assert len(done) > 1
    after = apply_compactions(LOG.history, done)
    for order in permutations(done):
        assert apply_compactions(LOG.history, order) == after
        assert apply_compactions(after, order) == after
    assert apply_compactions(LOG.history, [*done, *done]) == after


def test_a_checkpoint_stands_for_the_one_it_extends() -> None:
    done = cycles(LOG.history, LOG.task_ends, policy(Strategy.ANCHORED_CHECKPOINT))
    after = apply_compactions(LOG.history, done)
    assert [item for item in after if item.kind is Kind.SUMMARY] == [done[-1].items[0]]
    with pytest.raises(UsageError, match="send the whole log"):
        apply_compactions(LOG.history, done[1:])


def test_a_log_that_no_longer_holds_what_was_covered_is_refused() -> None:
    made = compacted(LOG.history, policy(Strategy.COMBINED))
    first = made.covers[0].id
    with pytest.raises(UsageError, match=f"covers {first}, which this log does not hold"):
        apply_compactions([item for item in LOG.history if item.id != first], [made])
    changed = [
        ContextItem(id=first, payload=step("c0_a", "other")) if item.id == first else item
        for item in LOG.history
    ]
    with pytest.raises(UsageError, match=f"was made for {first} with content .*; compact again"):
        apply_compactions(changed, [made])


def test_two_compactions_of_one_item_are_refused() -> None:
    both = [compacted(LOG.history, policy(strategy)) for strategy in (Strategy.COMBINED, Strategy.TRUNCATE)]
    with pytest.raises(UsageError, match="Nothing is compacted twice"):
        apply_compactions(LOG.history, both)


def test_compactions_that_cover_each_other_end_in_an_error_and_not_in_a_loop() -> None:
    made = compacted(LOG.history, policy(Strategy.COMBINED))
    item = made.items[0]
    other = item.model_copy(update={"id": "summary-other-0"})
    circle = [
        made.model_copy(
            update={
                "replaced": (
                    made.replaced[0].model_copy(
                        update={
                            "item": own,
                            "covers": (
                                made.covers[0].model_copy(
                                    update={"id": covered.id, "sha256": covered.sha256}
                                ),
                            ),
                        }
                    ),
                )
            }
        )
        for own, covered in ((item, other), (other, item))
    ]
    with pytest.raises(UsageError, match="which this log does not hold"):
        apply_compactions(LOG.history, circle)


def test_stored_records_give_the_same_bytes_again() -> None:
    done = cycles(LOG.history, LOG.task_ends, everything(Strategy.ANCHORED_CHECKPOINT))
    stored = [one.model_dump_json() for one in done]
    loaded = [Compaction.model_validate_json(text) for text in stored]
    assert loaded == list(done)
    assert [one.id for one in loaded] == [one.id for one in done]
    before, after = (
        [item.model_dump_json() for item in apply_compactions(LOG.history, each)] for each in (done, loaded)
    )
    assert before == after


def test_the_log_is_never_changed() -> None:
    before = [item.model_dump_json() for item in LOG.history]
    done = cycles(LOG.history, LOG.task_ends, everything(Strategy.QUERY_AWARE_SOURCES))
    apply_compactions(LOG.history, done)
    assert [item.model_dump_json() for item in LOG.history] == before


def test_without_compactions_the_log_is_what_it_was() -> None:
    history = (ContextItem(id="a", payload=UserTurn(text="hi")),)
    assert apply_compactions(history, ()) == history
