from __future__ import annotations

import pytest

from serving.assembler.compaction import Form, RefusalReason, Source, SummaryTask
from serving.assembler.compaction.answers import AnswerRefusedError, check_answer, cited_lines, sections

LOG = "Traceback (most recent call last):\nValueError: bad port 7\n[42 rows]\nbuilding wheels...\nI'm sorry, Dave."


def task(form: Form = Form.PROSE) -> SummaryTask:
    return SummaryTask(
        form=form, instruction="Shorten.", sources=(Source(id="turn-001", text=LOG),), max_output=100
    )


def refusal(text: str, finish_reason: str | None = "stop") -> RefusalReason | None:
    try:
        check_answer(task(), text, finish_reason)
    except AnswerRefusedError as error:
        return error.reason
    return None


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I’m unable to summarise this conversation.",
        "Sorry, something went wrong.",
        "I cannot process the request.",
        "As an AI language model, I have no access to it.",
        'Traceback (most recent call last):\n  File "x.py", line 3',
        "openai.RateLimitError: Error code: 429 - {'error': {}}",
        "TimeoutError: timed out",
        "Error code: 429 - {'error': {'message': 'Rate limit'}}",
        "HTTP/1.1 500 Internal Server Error",
        "502 Bad Gateway\nnginx",
        "<html><body><h1>503</h1></body></html>",
        '{"error": {"message": "boom", "code": 500}}',
        '{"object":"error","message":"This model\'s maximum context length is 4096 tokens"}',
        '{"detail":"Not Found, the model does not exist, and this text is long enough to be no placeholder: '
        + "x" * 100
        + '"}',
        "upstream connect error or disconnect/reset before headers",
        "- Service Unavailable",
        "maximum context length of 8192 tokens exceeded",
    ],
)
def test_an_error_or_a_refusal_is_no_summary(text: str) -> None:
    assert refusal(text) in (RefusalReason.ERROR_TEXT, RefusalReason.PLACEHOLDER)


@pytest.mark.parametrize(
    "text",
    [
        "[summary unavailable]",
        "<summary>",
        "TODO",
        "n/a",
        "...",
        "No summary available.",
        "# Summary\n\n[...]",
        "—",
    ],
)
def test_a_placeholder_is_no_summary(text: str) -> None:
    assert refusal(text) is RefusalReason.PLACEHOLDER


@pytest.mark.parametrize("text", ["", "  \n\t"])
def test_an_empty_answer_is_no_summary(text: str) -> None:
    assert refusal(text) is RefusalReason.EMPTY


@pytest.mark.parametrize(
    ("text", "finish_reason"),
    [
        ("The build failed, then", "length"),
        ("The build failed, then…", "stop"),
        ("The build failed.\n[output truncated: 400 more lines]", "stop"),
        ("The build failed (truncated)", "stop"),
    ],
)
def test_a_cut_answer_is_no_summary(text: str, finish_reason: str) -> None:
    assert refusal(text, finish_reason) is RefusalReason.TRUNCATED


def test_half_a_character_is_refused_and_not_passed_on() -> None:
    assert refusal("The log says \ud83d and ends.") is RefusalReason.WRONG_FORM


@pytest.mark.parametrize(
    "text",
    [
        "The import raised a ValueError, and the call answered 'Error code: 429'.",
        "The user was told: I'm sorry, it is sold out.",
        "Unfortunately named files were renamed.",
        "Two retries ended with 502 Bad Gateway; the third one worked.",
        "The page starts with <html> and holds a table.",
        "The tool wrote [summary unavailable] for one file; the others are fine.",
        "Sorrel was planted. Erroneous rows were dropped.",
        "Todo list: two entries are open.",
    ],
)
def test_a_summary_that_tells_of_errors_is_one(text: str) -> None:
    assert refusal(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: bad port 7",
        "Traceback (most recent call last):\nValueError: bad port 7",
        "- Traceback (most recent call last): [s1]",
        "I'm sorry, Dave.",
        "[42 rows]",
        "The port was bad.\nbuilding wheels...",
    ],
)
def test_an_error_that_the_log_holds_may_be_quoted(text: str) -> None:
    assert refusal(text) is None


KNOWN = {"s1": "turn-001", "s2": "turn-002#c", "turn-001": "turn-001", "turn,9": "turn,9"}


def test_lines_are_read_with_their_sources_by_label_or_id() -> None:
    text = (
        "Here it is:\n- port 7 [s1]\n* two\n  lines [see] [s2, turn-001].\n- odd id [turn,9]\n- none [s1]\n"
        "- both [s1][s2] [s1]\n- a [log] [s1]"
    )
    assert [(line.text, line.sources) for line in cited_lines(text, KNOWN)] == [
        ("port 7", ("turn-001",)),
        ("two lines [see]", ("turn-002#c", "turn-001")),
        ("odd id", ("turn,9",)),
        ("both", ("turn-001", "turn-002#c")),
        ("a [log]", ("turn-001",)),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- port 7", RefusalReason.UNSOURCED_CLAIM),
        ("- [s1]", RefusalReason.UNSOURCED_CLAIM),
        ("- port 7 [s1, s9]", RefusalReason.UNKNOWN_SOURCE),
        ("- port 7 []", RefusalReason.UNKNOWN_SOURCE),
        ("- port 7 [e]", RefusalReason.UNKNOWN_SOURCE),
    ],
)
def test_a_line_without_a_source_that_was_read_is_refused(text: str, reason: RefusalReason) -> None:
    with pytest.raises(AnswerRefusedError) as refused:
        cited_lines(text, KNOWN)
    assert refused.value.reason is reason


def test_sections_may_come_in_another_order_but_all_must_come_once() -> None:
    assert sections("Sure:\n### next step:\nb\n## **Goal**\na\nc", ("Goal", "Next step")) == {
        "Goal": "a\nc",
        "Next step": "b",
    }
    for text, reason in (
        ("## Goal\na", RefusalReason.MISSING_SECTION),
        ("## Goal\na\n## Goal\nb\n## Next step", RefusalReason.WRONG_FORM),
        ("## Goal\na\n## Rules\nb\n## Next step", RefusalReason.WRONG_FORM),
    ):
        with pytest.raises(AnswerRefusedError) as refused:
            sections(text, ("Goal", "Next step"))
        assert refused.value.reason is reason
