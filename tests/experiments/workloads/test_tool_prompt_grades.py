from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.agent.callform import CallForm
from experiments.workloads.tool_prompt_calls import (
    ExpectedCall,
    calculated,
    converted,
    file_read,
    program,
    time_in,
    weather_in,
)
from experiments.workloads.tool_prompt_grades import (
    MadeCall,
    Message,
    Turn,
    grade_turn,
    invented_numbers,
    same_call,
)
from experiments.workloads.tool_prompts import PromptClass, ToolPrompt, tool_prompt


def made(call: ExpectedCall, result: str | None = "fine") -> MadeCall:
    return MadeCall(name=call.name, arguments=json.dumps(call.arguments), result=call.prints or result)


def turn(*messages: list[MadeCall], answer: str | None = "Done.", form: CallForm = CallForm.NATIVE) -> Turn:
    return Turn(messages=tuple(Message(form=form, calls=tuple(calls)) for calls in messages), answer=answer)


def prompt(kind: PromptClass, *calls: ExpectedCall, fails: bool = False) -> ToolPrompt:
    ordered = kind in (PromptClass.CHAINED, PromptClass.TOOL_ERROR)
    return ToolPrompt(kind=kind, seed=0, text="?", calls=calls, ordered=ordered, fails=fails)


def right_turn(asked: ToolPrompt) -> Turn:
    calls = [made(call) for call in asked.calls]
    messages = [[call] for call in calls] if asked.ordered else [calls] if calls else []
    return turn(*messages)


@given(st.sampled_from(PromptClass), st.integers(0, 5_000))
def test_the_expected_calls_and_an_answer_are_right_for_every_prompt(kind: PromptClass, seed: int) -> None:
    asked = tool_prompt(kind, seed)
    grade = grade_turn(asked, right_turn(asked))
    assert grade.succeeded
    assert (grade.found, grade.wrong_calls) == (len(asked.calls), 0)
    assert grade.together in (True, None)


@given(st.sampled_from(PromptClass), st.integers(0, 5_000), st.data())
def test_one_call_more_or_one_less_is_never_right(kind: PromptClass, seed: int, data: st.DataObject) -> None:
    asked = tool_prompt(kind, seed)
    right = right_turn(asked)
    other = made(time_in("Utopia-on-Sea"))
    at = data.draw(st.integers(0, len(right.messages)))
    more = Message(form=CallForm.NATIVE, calls=(other,))
    extra = right.model_copy(update={"messages": (*right.messages[:at], more, *right.messages[at:])})
    assert not grade_turn(asked, extra).exact
    assert grade_turn(asked, extra).wrong_calls == 1
    if right.messages:
        fewer = right.model_copy(update={"messages": right.messages[:-1]})
        assert not grade_turn(asked, fewer).exact
        assert not grade_turn(asked, fewer).right_stop


@pytest.mark.parametrize(
    ("expected", "arguments", "same"),
    [
        (converted(250, "USD", "EUR"), '{"amount": 250.0, "source": "usd", "target": "EUR"}', True),
        (converted(250, "USD", "EUR"), '{"amount": 2.5e2, "source": "USD", "target": "EUR"}', True),
        (converted(250, "USD", "EUR"), '{"amount": "250", "source": "USD", "target": "EUR"}', False),
        (converted(250, "USD", "EUR"), '{"amount": true, "source": "USD", "target": "EUR"}', False),
        (converted(1, "USD", "EUR"), '{"amount": true, "source": "USD", "target": "EUR"}', False),
        (converted(250, "USD", "EUR"), '{"amount": NaN, "source": "USD", "target": "EUR"}', False),
        (converted(250, "USD", "EUR"), '{"amount": 250.0000001, "source": "USD", "target": "EUR"}', False),
        (converted(250, "USD", "EUR"), '{"amount": 250, "source": "EUR", "target": "USD"}', False),
        (converted(250, "USD", "EUR"), '{"amount": 250, "source": "USD", "target": "EUR", "x": 1}', False),
        (converted(250, "USD", "EUR"), '{"amount": 250, "source": "USD"', False),
        (converted(250, "USD", "EUR"), '[250, "USD", "EUR"]', False),
        (weather_in("Paris"), '{"city": "paris "}', True),
        (weather_in("Paris"), '{"city": "Paris", "days_ahead": 0}', True),
        (weather_in("Paris"), '{"city": "Paris", "days_ahead": 1}', False),
        (weather_in("Paris", 1), '{"city": "Paris"}', False),
        (weather_in("Paris"), '{"city": "Paris, France"}', False),
        (weather_in("Paris"), '{"city": ["Paris"]}', False),
        (weather_in("Paris"), '{"city": null}', False),
        (time_in("UTC"), "", True),
        (file_read("trips/ada.txt"), '{"path": "./trips/ada.txt"}', True),
        (file_read("trips/ada.txt"), '{"path": "trips/ada.txt", "max_lines": 200}', True),
        (file_read("trips/ada.txt"), '{"path": "trips/ada.txt", "max_lines": 1}', False),
        (file_read("trips/ada.txt"), '{"path": "Trips/ada.txt"}', False),
        (file_read("trips/ada.txt"), '{"path": "/trips/ada.txt"}', False),
        (calculated("6 * 9 / 5 + 32"), '{"expression": "32 + 6*9/5"}', True),
        (calculated("6 * 9 / 5 + 32"), '{"expression": "((6.0 × 9) ÷ 5) + 32"}', True),
        (calculated("6 * 9 / 5 + 32"), '{"expression": "42.8"}', False),
        (calculated("6 * 9 / 5 + 32"), '{"expression": "6 * 9 / (5 + 32)"}', False),
        (calculated("6 - 9"), '{"expression": "9 - 6"}', False),
        (calculated("6 - 9"), '{"expression": "__import__(\'os\')"}', False),
        (calculated("6 - 9"), '{"expression": ' + '"' + "(" * 400 + '"}', False),
        (calculated("-3 * 9 / 5 + 32"), '{"expression": "-3 * 9 / 5 + 32"}', True),
    ],
)  # fmt: skip
def test_arguments_are_compared_as_their_tool_understands_them(
    expected: ExpectedCall, arguments: str, same: bool
) -> None:
    assert same_call(expected, MadeCall(name=expected.name, arguments=arguments)) is same


def test_the_same_arguments_for_another_tool_are_another_call() -> None:
    assert not same_call(time_in("Paris"), MadeCall(name="get_weather", arguments='{"city": "Paris"}'))


def test_a_program_is_judged_by_what_it_printed_and_not_by_its_text() -> None:
    expected = program("31")
    text = json.dumps({"code": "print(31)"})
    assert same_call(expected, MadeCall(name="run_python", arguments=text, result="31\n"))
    assert not same_call(expected, MadeCall(name="run_python", arguments=text, result="[exit status 1]"))
    assert not same_call(expected, MadeCall(name="run_python", arguments=text))


def test_a_chain_in_one_message_is_a_guess_and_not_exact() -> None:
    asked = prompt(PromptClass.CHAINED, weather_in("Paris"), calculated("6 * 9"))
    one, two = made(weather_in("Paris")), made(calculated("6 * 9"))
    assert grade_turn(asked, turn([one], [two])).exact
    assert not grade_turn(asked, turn([one, two])).exact
    assert not grade_turn(asked, turn([two], [one])).exact


def test_independent_calls_are_exact_in_any_order_and_together_only_in_one_message() -> None:
    asked = prompt(PromptClass.PARALLEL, time_in("Paris"), time_in("Tokyo"))
    one, two = made(time_in("Paris")), made(time_in("Tokyo"))
    assert grade_turn(asked, turn([two, one])).together
    apart = grade_turn(asked, turn([one], [two]))
    assert (apart.exact, apart.together, apart.succeeded) == (True, False, True)


def test_a_repeated_call_is_a_wrong_one() -> None:
    asked = prompt(PromptClass.TOOL_ERROR, time_in("Utopia"), fails=True)
    again = grade_turn(asked, turn([made(time_in("Utopia"))], [made(time_in("Utopia"))]))
    assert (again.exact, again.right_stop, again.wrong_calls) == (False, False, 1)


@pytest.mark.parametrize("answer", [None, "", " \n", '{"name": "get_time", "arguments": {"city": "Paris"}}'])
def test_a_turn_that_does_not_end_in_words_has_no_right_stop(answer: str | None) -> None:
    asked = prompt(PromptClass.SINGLE, time_in("Paris"))
    grade = grade_turn(asked, turn([made(time_in("Paris"))], answer=answer))
    assert (grade.exact, grade.right_stop, grade.succeeded) == (True, False, False)
    assert not grade_turn(prompt(PromptClass.NO_TOOL), turn(answer=answer)).succeeded


def test_a_message_that_cannot_be_read_ends_no_turn_rightly() -> None:
    asked = prompt(PromptClass.SINGLE, time_in("Paris"))
    broken = Message(form=CallForm.MALFORMED, calls=())
    before = turn([made(time_in("Paris"))])
    after = before.model_copy(update={"messages": (*before.messages, broken)})
    assert not grade_turn(asked, after).right_stop
    healed = before.model_copy(update={"messages": (broken, *before.messages)})
    assert grade_turn(asked, healed).succeeded


def test_a_harness_that_reads_the_templates_form_alone_stops_at_the_first_other_one() -> None:
    asked = prompt(PromptClass.CHAINED, time_in("Paris"), time_in("Tokyo"))
    native = Message(form=CallForm.NATIVE, calls=(made(time_in("Paris")),))
    fenced = Message(form=CallForm.FENCED, calls=(made(time_in("Tokyo")),))
    both = Turn(messages=(native, fenced), answer="Done.")
    assert grade_turn(asked, both).succeeded
    read = both.read_natively()
    assert (len(read.messages), read.answer) == (1, None)
    assert not grade_turn(asked, read).succeeded
    assert turn([made(time_in("Paris"))]).read_natively() == turn([made(time_in("Paris"))])


def test_a_number_that_nobody_gave_is_invented() -> None:
    asked = prompt(PromptClass.TOOL_ERROR, weather_in("Utopia"), fails=True)
    said = turn(
        [made(weather_in("Utopia"), "There is no city.")], answer="It is 21 °C in Utopia, 0 days ahead."
    )
    assert invented_numbers(asked, said) == ("21",)
