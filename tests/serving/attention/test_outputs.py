"""What the model wrote is divided by its own marks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.attention.outputs import OutputMarks, output_marks, output_owners, thinking_is_open
from serving.chat import ChatTokenizer
from tests.support.tiny_model import write_tiny_folder

MARKS = OutputMarks(thinking=(1, 2), tool_call=(3, 4), stop=(5,))


def names(ids: list[int], **more: bool) -> list[str]:
    return [segment.id.removeprefix("output#") for segment in output_owners(ids, MARKS, **more)]


def test_thinking_answer_calls_and_the_stop_token_stand_apart() -> None:
    assert names([1, 9, 2, 9, 3, 9, 4, 9, 3, 4, 5]) == [
        *["thinking"] * 3,
        "answer",
        *["call:0"] * 3,
        "answer",
        *["call:1"] * 2,
        "framing",
    ]


def test_a_prompt_that_opened_the_thinking_goes_on_with_it() -> None:
    assert names([9, 9, 2, 9], in_thinking=True) == ["thinking", "thinking", "thinking", "answer"]


def test_a_part_that_is_cut_runs_to_the_end() -> None:
    assert names([1, 9, 9]) == ["thinking"] * 3
    assert names([9, 3, 9]) == ["answer", "call:0", "call:0"]


def test_a_closing_mark_out_of_place_changes_nothing() -> None:
    assert names([9, 2, 9, 4]) == ["answer"] * 4


@given(st.lists(st.integers(0, 9), max_size=60), st.booleans())
def test_every_generated_token_has_one_segment(ids: list[int], in_thinking: bool) -> None:
    owners = output_owners(ids, MARKS, in_thinking=in_thinking)
    assert len(owners) == len(ids)
    assert all(owner.generated or owner.id == "framing" for owner in owners)


@pytest.mark.parametrize(
    ("tail", "is_open"), [([7, 1, 7], True), ([7, 1, 7, 2, 7], False), ([7], False), ([1, 2, 1], True)]
)
def test_the_generation_prompt_tells_whether_thinking_has_begun(tail: list[int], is_open: bool) -> None:
    assert thinking_is_open(tail, MARKS) is is_open
    assert not thinking_is_open(tail, OutputMarks())


def test_marks_come_from_the_tokenizers_added_tokens(tmp_path: Path) -> None:
    tokenizer = ChatTokenizer(write_tiny_folder(tmp_path, "qwen3"))
    ids = tokenizer.added_tokens()
    marks = output_marks(tokenizer)
    assert marks.thinking == (ids["<think>"], ids["</think>"])
    assert marks.tool_call == (ids["<tool_call>"], ids["</tool_call>"])
    assert ids["<|im_end|>"] in marks.stop
    assert ids["<think>"] not in marks.stop
