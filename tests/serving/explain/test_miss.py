"""Which earlier request names the cause, and that counts are those of the nearest ids whoever names it."""

from __future__ import annotations

from pathlib import Path

from serving.chat import ChatRenderer
from serving.explain import Miss, MissCause, explain_miss, turn_of
from serving.prefix import Predictor
from tests.support.logs import assistant, system, user

RULES = system("You are a careful harbour assistant.")
LOG = [
    user("How deep is berth 4?"),
    assistant("Nine metres."),
    user("Who is there?"),
    assistant("Nobody."),
    user("How deep is berth 7?"),
    assistant("Six metres."),
    user("And berth 8?"),
]


def test_the_turn_before_names_the_cause_where_the_nearest_ids_are_of_an_older_one(
    models: dict[str, Path],
) -> None:
    renderer = ChatRenderer(models["qwen2_5"])
    turns = [turn_of(renderer, [RULES, *LOG[start : start + 3]]) for start in (0, 2, 4)]
    predictor = Predictor(4)
    for turn in turns[:2]:
        predictor.predict_next(turn.prompt_ids, None)
        predictor.record(())
    prediction = predictor.predict_next(turns[2].prompt_ids, None)
    assert prediction.nearest is not None
    assert prediction.nearest.index == 0, "the question whose first words are the same is the nearest"

    def told(before: int | None) -> Miss:
        return explain_miss(prediction, turns[2], turns[0], before=None if before is None else turns[before])

    alone, both = told(None), told(1)
    assert alone.finding is not None
    assert both.finding is not None
    assert alone.finding.cause is not MissCause.TRIMMED_HISTORY
    assert both.finding.cause is MissCause.TRIMMED_HISTORY
    assert both.broken == alone.broken
    assert sorted(both.tokens.values()) == sorted(alone.tokens.values())
    assert both.tokens.get(MissCause.NEW) == alone.tokens.get(MissCause.NEW)
    assert told(0).finding == alone.finding, "the nearest one itself tells nothing else"
