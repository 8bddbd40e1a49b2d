from __future__ import annotations

from pathlib import Path

import pytest

from serving.chat.survey import Habit, Kept, NotAsked, Probe, Spelling, TemplateSurvey, survey_template
from serving.errors import UsageError

TEMPLATES = Path(__file__).parents[1] / "templates"


def survey(name: str) -> TemplateSurvey:
    return survey_template(name, (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8"))


def habits(found: TemplateSurvey) -> dict[Habit, str]:
    return {finding.habit: finding.sentence for finding in found.findings}


def test_qwen3_with_thinking_off_computes_every_turn_again() -> None:
    found = survey("qwen3")
    assert found.probes[Probe.THINKING_OFF].kept is Kept.PART
    assert "thinking off" in habits(found)[Habit.EMPTY_THINK_VANISHES]


def test_qwen3_keeps_reasoning_inside_a_loop_and_strips_it_when_a_new_question_comes() -> None:
    found = survey("qwen3")
    assert found.probes[Probe.ECHOED_LOOP].kept is Kept.ALL
    assert found.probes[Probe.ECHOED_AFTER_LOOP].kept is Kept.PART
    stripped = habits(found)[Habit.THINKING_STRIPPED]
    assert "all of a running tool loop" in stripped
    assert "none of a loop that a new question ended" in stripped


def test_reasoning_that_the_client_leaves_out_is_lost_with_every_template_that_thinks() -> None:
    for name in ("qwen3", "qwen3_6", "gptoss", "gemma4_v4"):
        assert survey(name).probes[Probe.LEFT_OUT_LOOP].kept is Kept.PROMPT, name


def test_a_tool_added_at_the_end_of_the_list_costs_everything_behind_the_list() -> None:
    found = survey("qwen2_5")
    [proof] = found.probes[Probe.TOOL_ADDED].proofs
    assert proof.kept is Kept.PART
    assert proof.difference is not None and proof.difference.place == "head"
    assert proof.difference.was.startswith("</tools>")


def test_dates_are_found_whatever_the_day() -> None:
    assert Habit.PRINTS_TODAY in habits(survey("gptoss"))
    given = survey_template(
        "dated", "{{ date_string or 'x' }}{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    assert Habit.PRINTS_DATE_STRING in habits(given) and Habit.PRINTS_TODAY not in habits(given)
    assert not {Habit.PRINTS_TODAY, Habit.PRINTS_DATE_STRING} & set(habits(survey("qwen3")))


def test_a_tool_result_that_looks_like_a_question_is_told_from_one_with_its_own_header() -> None:
    assert Habit.RESULT_AS_USER in habits(survey("qwen3"))
    assert Habit.RESULT_AS_USER not in habits(survey("gptoss"))


def test_a_template_without_tools_is_not_asked_and_its_silence_is_named() -> None:
    found = survey("smollm2")
    assert found.probes[Probe.TOOL_LOOP].not_asked is NotAsked.NO_TOOLS
    assert found.probes[Probe.ECHOED].not_asked is NotAsked.NO_REASONING
    assert {Habit.TOOLS_NOT_SHOWN, Habit.CALL_DROPPED} <= set(habits(found))


def test_a_second_parallel_call_that_is_dropped_is_named() -> None:
    found = survey("gptoss")
    assert found.probes[Probe.PARALLEL_TOOLS].kept is Kept.PROMPT
    assert Habit.SECOND_CALL_DROPPED in habits(found)


def test_spellings_that_a_template_cannot_take_are_named_with_its_words() -> None:
    by_spelling = {deviation.spelling: deviation for deviation in survey("qwen3_6").deviations}
    text = by_spelling[Spelling.ARGUMENTS_AS_TEXT]
    assert text.kept is Kept.REFUSED and text.refusal
    assert Probe.TOOL_LOOP in text.probes
    assert by_spelling.keys() == {Spelling.ARGUMENTS_AS_TEXT}


def test_arguments_quoted_again_are_named() -> None:
    assert Habit.ARGUMENTS_QUOTED in habits(survey("qwen2_5"))
    assert Habit.ARGUMENTS_QUOTED not in habits(survey("qwen3"))


def test_a_template_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="does not compile"):
        survey_template("broken", "{% for %}")
