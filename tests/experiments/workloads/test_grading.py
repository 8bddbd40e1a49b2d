from __future__ import annotations

import pytest

from experiments.workloads.grading import NUMBER, Reason, one_of, read_answer, read_number

YES_NO = one_of(("yes", "no"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("  Yes. \n", "Yes"),
        ("**no**", "no"),
        ("Answer: yes", "yes"),
        ("> Answer: no", "no"),
        ("Let me see.\nThree of three.\n- Answer: `no`.", "no"),
        ("Answer: no\nThat is all.\nanswer: NO", "no"),
    ],
)
def test_an_answer_is_one_line_or_the_lines_that_say_so(text: str, value: str) -> None:
    said = read_answer(text, YES_NO)
    assert (said.value, said.problem) == (value, None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", Reason.NO_ANSWER),
        ("yes, if you like", Reason.NO_ANSWER),
        ("I think\nyes", Reason.NO_ANSWER),
        ("Answer:", Reason.NO_ANSWER),
        ("Answer: X", Reason.NO_ANSWER),
        ("Answer: yesno", Reason.NO_ANSWER),
        ("Answer: yes\nAnswer: no", Reason.SEVERAL_ANSWERS),
        ("the answer is: yes", Reason.NO_ANSWER),
    ],
)
def test_what_is_no_single_answer_says_what_it_is(text: str, reason: Reason) -> None:
    said = read_answer(text, YES_NO)
    assert (said.value, said.problem) == (None, reason)
    assert said.detail


@pytest.mark.parametrize(
    ("text", "value"),
    [("7", "7"), ("007", "7"), ("Answer: 1,024.", "1024"), ("1024", "1024"), ("12345,678", None), ("seven", None),
     ("7 cats", None), ("-7", None), ("7.5", None), ("٧", None)],
)  # fmt: skip
def test_numbers_are_whole_and_written_in_figures(text: str, value: str | None) -> None:
    assert read_number(text).value == value


def test_letter_case_does_not_count_where_choices_are_compared() -> None:
    assert read_answer("QXLM", one_of(("qxlm",))).value == "QXLM"
    assert read_answer("1,0", NUMBER).problem is Reason.NO_ANSWER
