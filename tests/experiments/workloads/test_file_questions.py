from __future__ import annotations

from collections import Counter

import pytest

from experiments.workloads.file_questions import FACTS, FACTS_ASKED, file_question
from experiments.workloads.file_tour import SNAPSHOT
from serving.errors import UsageError


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.asks)
def test_every_fact_stands_in_its_file(fact) -> None:
    text = (SNAPSHOT / fact.path).read_text(encoding="utf-8")
    question = file_question(0).model_copy(update={"facts": (fact,)})
    assert question.solved(text.replace(",", " ").replace("=", " "))


def test_every_question_needs_three_files_and_no_two_are_the_same() -> None:
    questions = [file_question(number) for number in range(16)]
    for question in questions:
        assert len({fact.path for fact in question.facts}) == FACTS_ASKED
        assert all(fact.path in question.text and fact.asks in question.text for fact in question.facts)
        assert not question.found(question.text), "the question gives an answer away"
    assert len({question.text for question in questions}) > 12
    asked = Counter(fact.asks for question in questions[:12] for fact in question.facts)
    assert asked == dict.fromkeys((fact.asks for fact in FACTS), 3), "one fact weighs more than another"
    assert file_question(3, 1) == file_question(3, 1) != file_question(3, 2)


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("30, 02:30 and 2.40.", True),
        ("`30`; **02:30**; 2.40", True),
        ("The minutes: 30. Sent at 02:30. Summer 2.40", True),
        ("02:30 and 2.40", False),
        ("300, 02:30, 2.40", False),
        ("30, 02:30, 12.40", False),
        ("30, 02:30:00, 2.405", False),
        ("30: of a hold; 02:30: send; 2.40: summer", True),
        ("", False),
        (None, False),
    ],
)
def test_a_value_counts_only_as_a_word_of_its_own(answer: str | None, right: bool) -> None:
    facts = tuple(fact for fact in FACTS if fact.value in ("30", "02:30", "2.40"))
    assert file_question(0).model_copy(update={"facts": facts}).solved(answer) is right


def test_a_question_before_the_first_is_refused() -> None:
    with pytest.raises(UsageError, match="0 or more"):
        file_question(-1)
