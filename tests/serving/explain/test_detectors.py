"""Each cause by a pair of requests that proves it, and the near misses that must not be called so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serving.chat import ChatRenderer, DialectName
from serving.explain import Difference, MissCause, difference, name_cause, turn_of
from serving.explain.turn import Turn
from serving.prefix.history import common_prefix
from serving.prefix.prediction import id_array
from tests.support.logs import Body, assistant, call, result, system, tool, user

RULES = system("You are a careful harbour assistant. Answer in one sentence and name the berth.")
QUESTION, ANSWER, NEXT = user("Which berth is free?"), assistant("Berth four."), user("And tomorrow?")

Compared = Callable[..., Difference]


def between(stored: Turn, sent: Turn) -> Difference:
    return difference(stored, sent, common_prefix(id_array(stored.ids), id_array(sent.prompt_ids)))


@pytest.fixture(scope="module")
def renderers(models: dict[str, Path]) -> dict[str, ChatRenderer]:
    return {name: ChatRenderer(folder) for name, folder in models.items()}


@pytest.fixture
def compare(renderers: dict[str, ChatRenderer]) -> Compared:
    def run(stored: list[Body], sent: list[Body], *, model: str = "qwen2_5", **sides: Any) -> Difference:
        renderer = renderers[model]
        return between(
            turn_of(renderer, stored, sides.get("old_tools", ()), reply=sides.get("reply")),
            turn_of(renderer, sent, sides.get("new_tools", ())),
        )

    return run


def cause(found: Difference) -> MissCause:
    return name_cause(found).cause


def rules(text: str) -> Body:
    return system(f"{RULES['content']} {text} Be brief and friendly at all times.")


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        ("Now 2026-03-02T09:00:01+01:00.", "Now 2026-03-02T09:00:38+01:00.", MissCause.CLOCK),
        ("It is Monday, March 2, 2026.", "It is Tuesday, March 3, 2026.", MissCause.CLOCK),
        ("Time: 9:59 AM.", "Time: 10:00 AM.", MissCause.CLOCK),
        ("ts=1772442001", "ts=1772442038", MissCause.CLOCK),
        ("02.03.2026 is today.", "03.03.2026 is today.", MissCause.CLOCK),
        ("Call 7 of this session.", "Call 8 of this session.", MissCause.COUNTER),
        (
            "Session 0b1e7a52-9c0f-4a2e-8f6b-1f0e7a529c0f.",
            "Session 7d3c1f90-2b4a-4c6d-9e8f-7a529c0f1b1e.",
            MissCause.IDENTIFIER,
        ),
        ("The berths are dry.", "The cranes are tall.", MissCause.EDITED_MIDDLE),
    ],
)
def test_what_changes_in_the_system_prompt_is_named(
    compare: Compared, was: str, now: str, expected: MissCause
) -> None:
    assert cause(compare([rules(was), QUESTION], [rules(now), QUESTION, ANSWER, NEXT])) is expected


def test_numbers_in_the_questions_of_two_conversations_are_no_counter(compare: Compared) -> None:
    ask = [user(f"How deep is berth {number} at low tide, and who is there?") for number in (4, 7)]
    assert cause(compare([RULES, ask[0]], [RULES, ask[1]])) is MissCause.BRANCHED


def test_two_questions_to_one_form_are_no_edit(compare: Compared) -> None:
    ask = [user(f"Summarise in one sentence: {text}") for text in ("the crane is red", "no ship came today")]
    assert cause(compare([RULES, ask[0]], [RULES, ask[1], ANSWER, NEXT])) is MissCause.BRANCHED


def test_a_window_that_slides_is_trimmed_history(compare: Compared) -> None:
    history = [RULES, QUESTION, ANSWER, user("How deep?"), assistant("Nine metres."), NEXT]
    found = compare(history, [RULES, *history[3:], assistant("Full."), user("Then?")])
    assert cause(found) is MissCause.TRIMMED_HISTORY
    assert "Messages 1 to 2" in name_cause(found).detail


def test_a_cut_tool_result_is_an_edit_of_that_message(compare: Compared) -> None:
    used = assistant("", calls=[call("look", "{}")])
    long, short = result("berth four is free " * 20), result("berth four is free (cut)")
    found = compare([RULES, QUESTION, used, long], [RULES, QUESTION, used, short, ANSWER, NEXT])
    finding = name_cause(found)
    assert finding.cause is MissCause.EDITED_MIDDLE
    assert "message 3" in finding.detail


def test_a_message_put_before_others_is_an_edit(compare: Compared) -> None:
    inserted = [RULES, user("By the way: it rains."), assistant("Noted."), QUESTION, ANSWER, NEXT]
    found = name_cause(compare([RULES, QUESTION], inserted))
    assert found.cause is MissCause.EDITED_MIDDLE
    assert "2 messages inserted" in found.detail


def test_a_status_at_the_end_that_does_not_stay_is_ephemeral(compare: Compared) -> None:
    with_status = user(f"{QUESTION['content']}\n[09:00:11, two berths seen]")
    found = compare([RULES, with_status], [RULES, QUESTION, ANSWER, NEXT])
    finding = name_cause(found)
    assert finding.cause is MissCause.EPHEMERAL
    assert "'[09:00:11, two berths seen]'" in finding.detail
    assert found.broken.stored.message_index == 1


def test_a_status_that_stands_at_the_end_again_is_named_with_both_places(compare: Compared) -> None:
    bars = [user(f"<status>\nseen: {count}\n</status>") for count in (1, 2)]
    used = [assistant("", calls=[call("look", "{}")]), result("four")]
    finding = name_cause(compare([RULES, QUESTION, bars[0]], [RULES, QUESTION, *used, bars[1]]))
    assert finding.cause is MissCause.EPHEMERAL
    assert finding.detail == (
        r"Message 2 of the earlier request ('<status>\nseen: 1\n</status>') is not where it stood, and one of that "
        "form is message 4 now."
    )


def test_a_reminder_that_follows_the_end_unchanged_is_ephemeral(compare: Compared) -> None:
    reminder = user("Remember: one sentence.")
    sent = [RULES, QUESTION, ANSWER, NEXT, reminder]
    assert cause(compare([RULES, QUESTION, reminder], sent)) is MissCause.EPHEMERAL


def test_a_question_edited_in_place_is_no_ephemeral_text(compare: Compared) -> None:
    asked = [RULES, QUESTION, ANSWER]
    found = compare([*asked, NEXT], [*asked, user("Where is the crane?"), ANSWER, user("Thanks.")])
    assert cause(found) is MissCause.BRANCHED


def test_questions_that_differ_in_a_number_are_no_counter_where_a_window_slides(compare: Compared) -> None:
    asked = [message for depth in (4, 7, 9) for message in (user(f"How deep is berth {depth}?"), ANSWER)]
    assert cause(compare([RULES, *asked, NEXT], [RULES, *asked[2:], NEXT])) is MissCause.TRIMMED_HISTORY


def test_stripped_white_space_is_named(compare: Compared) -> None:
    found = compare(
        [RULES, user("Which  berth is free? \n")], [RULES, user("Which berth is free?"), ANSWER, NEXT]
    )
    assert cause(found) is MissCause.WHITESPACE


def test_a_reply_that_was_stripped_before_it_was_sent_back(renderers: dict[str, ChatRenderer]) -> None:
    renderer = renderers["qwen2_5"]
    output = renderer.tokenizer.encode("  Berth  four. <|im_end|>").ids
    stored = turn_of(renderer, [RULES, QUESTION], output_ids=output, reply=assistant("  Berth  four. "))
    assert cause(between(stored, turn_of(renderer, [RULES, QUESTION, ANSWER, NEXT]))) is MissCause.WHITESPACE


def test_tools_that_come_and_go_are_named(compare: Compared) -> None:
    old, new = [tool("look")], [tool("look"), tool("list")]
    found = compare([RULES, QUESTION], [RULES, QUESTION, ANSWER, NEXT], old_tools=old, new_tools=new)
    finding = name_cause(found)
    assert finding.cause is MissCause.TOOL_SET
    assert finding.detail == "The tools are not the same: added list at the end of the list."
    assert "from the first request on" in finding.advice
    back = compare([RULES, QUESTION], [RULES, QUESTION, ANSWER, NEXT], old_tools=new)
    assert "removed look, list" in name_cause(back).detail


def test_a_clock_in_a_tools_description_is_a_clock(compare: Compared) -> None:
    tools = [tool("look", f"Looks, as of {day}, at a berth.") for day in ("2026-03-02", "2026-03-03")]
    found = compare(
        [RULES, QUESTION], [RULES, QUESTION, ANSWER, NEXT], old_tools=tools[:1], new_tools=tools[1:]
    )
    assert cause(found) is MissCause.CLOCK
    assert found.broken.sent.tool == "look"


def test_a_changed_schema_is_named_with_its_json_path(compare: Compared) -> None:
    tools = [tool("look", path={"type": "string", "description": text}) for text in ("A path.", "The file.")]
    found = compare(
        [RULES, QUESTION], [RULES, QUESTION, ANSWER, NEXT], old_tools=tools[:1], new_tools=tools[1:]
    )
    assert cause(found) is MissCause.TOOL_DEFINITION
    assert found.broken.sent.json_path == "$.properties.path.description"


def test_schema_keys_in_another_order_are_the_applications_own_to_fix(compare: Compared) -> None:
    tools = [
        tool("look", path={"type": "string", "title": "p"}),
        tool("look", path={"title": "p", "type": "string"}),
    ]
    found = name_cause(
        compare([RULES, QUESTION], [RULES, QUESTION, ANSWER, NEXT], old_tools=tools[:1], new_tools=tools[1:])
    )
    assert found.cause is MissCause.JSON_KEY_ORDER
    assert "arguments" not in found.advice


def test_equal_tools_that_two_surfaces_print_otherwise_are_the_servers_doing(models: dict[str, Path]) -> None:
    bare: list[Body] = [{"type": "function", "function": {"name": "look"}}]
    here = ChatRenderer(models["qwen2_5"], dialect=DialectName.PLAIN)
    served = ChatRenderer(models["qwen2_5"])
    stored, sent = (
        turn_of(here, [RULES, QUESTION], bare),
        turn_of(served, [RULES, QUESTION, ANSWER, NEXT], bare),
    )
    assert cause(between(stored, sent)) is MissCause.SERVER_TOOLS


def test_spaces_between_arguments_show_where_a_template_prints_the_string(models: dict[str, Path]) -> None:
    plain = ChatRenderer(models["qwen2_5"], dialect=DialectName.PLAIN)
    made = [assistant("", calls=[call("look", text)]) for text in ('{"a": 1, "b": 2}', '{"a":1,"b":2}')]
    stored, sent = (turn_of(plain, [RULES, QUESTION, message, result("ok")]) for message in made)
    assert cause(between(stored, sent)) is MissCause.JSON_SPACING


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('{"name": "look", "arguments": {"a": 1}}', MissCause.CALL_FORM),
        ('{"name": "look", "arguments": {"a":1}}', MissCause.CALL_FORM),
        ('```json\n{"name": "look", "arguments": {"a": 1}}\n```', MissCause.CALL_FORM),
        ('I look.\n{"name": "look", "arguments": {"a": 1}}', MissCause.CALL_FORM),
        ('{"name": "list", "arguments": {}}\n{"name": "look", "arguments": {"a": 1}}', MissCause.CALL_FORM),
        ('{"name": "look", "arguments": {"a": 2}}', MissCause.UNKNOWN),
        ('{"name": "list", "arguments": {"a": 1}}', MissCause.UNKNOWN),
        ("I look at a, which is 1.", MissCause.UNKNOWN),
        ('{"name": "look", "arguments": {"a": 1', MissCause.UNKNOWN),
    ],
)
def test_a_call_that_was_not_written_in_the_templates_form_and_comes_back_in_it_is_named(
    written: str, expected: MissCause, renderers: dict[str, ChatRenderer]
) -> None:
    renderer, asked, tools = renderers["qwen2_5"], [RULES, QUESTION], [tool("look"), tool("list")]
    words = "I look." if written.startswith("I look.") else ""
    stored = turn_of(renderer, asked, tools, output_ids=renderer.tokenizer.encode(f"{written}<|im_end|>").ids)
    sent = turn_of(
        renderer, [*asked, assistant(words, calls=[call("look", '{"a": 1}')]), result("ok")], tools
    )
    assert cause(between(stored, sent)) is expected


def test_a_request_that_ends_where_the_reply_began_holds_no_call(models: dict[str, Path]) -> None:
    asked, written = [RULES, QUESTION], '{"name": "look", "arguments": {"a": 1}}'
    thinks = ChatRenderer(models["qwen3"])
    silent = ChatRenderer(models["qwen3"], template_kwargs={"enable_thinking": False})
    stored = turn_of(thinks, asked, output_ids=thinks.tokenizer.encode(written).ids)
    found = between(stored, turn_of(silent, asked))
    assert found.in_reply
    assert cause(found) is not MissCause.CALL_FORM


def test_other_arguments_are_another_answer(compare: Compared) -> None:
    made = [assistant("", calls=[call("look", text)]) for text in ('{"a": 1}', '{"a": 2}')]
    found = compare(
        [RULES, QUESTION, made[0], result("ok")], [RULES, QUESTION, made[1], result("ok"), ANSWER, NEXT]
    )
    assert cause(found) is MissCause.EDITED_MIDDLE


def test_reasoning_that_comes_back_late_is_echoed(compare: Compared) -> None:
    loop = [RULES, QUESTION, assistant("", calls=[call("look", "{}")]), result("four")]
    thought = assistant("", calls=[call("look", "{}")], thought="I look first.")
    found = compare(loop, [*loop[:2], thought, *loop[3:]], model="qwen3")
    assert cause(found) is MissCause.REASONING_ECHOED


def test_reasoning_that_the_client_leaves_out_is_dropped(compare: Compared) -> None:
    loop = [
        RULES,
        QUESTION,
        assistant("", calls=[call("look", "{}")], thought="I look first."),
        result("four"),
    ]
    without = assistant("", calls=[call("look", "{}")])
    found = name_cause(compare(loop, [*loop[:2], without, loop[3]], model="qwen3"))
    assert found.cause is MissCause.REASONING_DROPPED
    assert "was sent before and is gone now" in found.detail


@pytest.mark.parametrize(
    ("kept", "expected"),
    [("I look at the berths", MissCause.REASONING_DROPPED), ("I look elsewhere", MissCause.UNKNOWN)],
)
def test_an_answer_that_a_parser_took_for_reasoning_without_a_mark_is_dropped(
    kept: str, expected: MissCause, renderers: dict[str, ChatRenderer]
) -> None:
    renderer, asked = renderers["qwen3"], [RULES, QUESTION]
    output = renderer.tokenizer.encode("I look at the berths").ids
    stored = turn_of(renderer, asked, (), output_ids=output)
    sent = turn_of(renderer, [*asked, assistant("", thought=kept), NEXT], ())
    assert cause(between(stored, sent)) is expected


def test_marks_of_reasoning_in_a_users_words_are_no_reasoning(compare: Compared) -> None:
    asked = [user(f"What does {text} mean in a prompt?") for text in ("<think>", "[think]")]
    assert cause(compare([RULES, asked[0]], [RULES, asked[1]])) is MissCause.BRANCHED


def test_a_late_system_message_moves_to_the_head(compare: Compared) -> None:
    brief = {"role": "developer", "content": "Be brief."}
    stored = [RULES, QUESTION, brief]
    found = compare(stored, [*stored, ANSWER, NEXT, system("Now in French.")], model="smollm2")
    assert cause(found) is MissCause.SERVER_SYSTEM_MERGE
    assert found.broken.message_index == 5


def test_other_template_arguments_are_named(models: dict[str, Path]) -> None:
    source = "{{ mode }}: {% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    modes = [{"mode": mode} for mode in ("brief", "long")]
    stored, sent = (
        turn_of(
            ChatRenderer(models["qwen2_5"], template_override=source, template_kwargs=mode),
            [RULES, QUESTION],
            template_kwargs=mode,
        )
        for mode in modes
    )
    finding = name_cause(between(stored, sent))
    assert finding.cause is MissCause.TEMPLATE_ARGUMENTS
    assert "mode was 'brief', now 'long'" in finding.detail


def test_a_template_that_marks_the_last_message_is_asymmetric(models: dict[str, Path]) -> None:
    source = "{% for m in messages %}[{{ m.role }}{% if loop.last %} last{% endif %}] {{ m.content }}\n{% endfor %}"
    renderer = ChatRenderer(models["qwen2_5"], template_override=source)
    stored, sent = turn_of(renderer, [RULES, QUESTION]), turn_of(renderer, [RULES, QUESTION, ANSWER, NEXT])
    assert cause(between(stored, sent)) is MissCause.TEMPLATE_ASYMMETRY


def test_where_nothing_is_provable_it_is_said(renderers: dict[str, ChatRenderer]) -> None:
    renderer = renderers["qwen2_5"]
    read = renderer.tokenizer.encode("another prompt altogether, rendered by nobody knows what").ids
    stored = turn_of(renderer, [RULES, QUESTION], prompt_ids=read)
    assert cause(between(stored, turn_of(renderer, [RULES, QUESTION]))) is MissCause.UNKNOWN


def test_a_word_that_goes_on_is_an_edit_and_no_other_tokenisation(compare: Compared) -> None:
    found = compare([RULES, user("Which harbour")], [RULES, user("Which harbourmaster is it?"), ANSWER, NEXT])
    assert cause(found) is not MissCause.RETOKENISED
