"""Edits of known kinds to made-up conversations: the kind that was applied is named, and no other one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.chat import ChatRenderer
from serving.explain import MissCause, difference, name_cause, turn_of
from serving.explain.alignment import first_edit, first_fragment
from serving.prefix.history import common_prefix
from serving.prefix.prediction import id_array
from tests.support.logs import Body, assistant, call, result, system, tool, user

WORDS = (
    "berth",
    "crane",
    "harbour",
    "tide",
    "pilot",
    "mooring",
    "buoy",
    "anchor",
    "ledger",
    "cargo",
    "hull",
    "rope",
)
FEW = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
Cause = MissCause
Named = Callable[..., MissCause | None]


@dataclass
class Conversation:
    """What was sent, the reply to it, and what is sent next where the client only adds."""

    stored: list[Body]
    reply: Body
    told: bool
    """Whether the explainer is told of the reply, as a log does and a call here does not."""
    news: list[Body]

    @property
    def sent(self) -> list[Body]:
        return [*self.stored, self.reply, *self.news]


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    """Questions, answers and tool steps whose texts are all different, each with a number in its middle."""
    number = iter(range(10, 1000))

    def text() -> str:
        begin, end = (" ".join(draw(st.lists(st.sampled_from(WORDS), min_size=2, max_size=5))) for _ in "ab")
        count = next(number)
        return f"{begin} number {count} {draw(st.sampled_from(WORDS))}{count} {end}."

    messages = [system("You help in a harbour, in few words."), user(text())]
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            made = f"call_{len(messages)}"
            messages += [
                assistant("", calls=[call("look", f'{{"at": "{text()}"}}', made)]),
                result(text(), made),
            ]
        else:
            messages += [assistant(text()), user(text())]
    return Conversation(messages, assistant(text()), draw(st.booleans()), [user(text())])


@pytest.fixture(scope="module")
def named(models: dict[str, Path]) -> Named:
    renderer = ChatRenderer(models["qwen2_5"])

    def run(
        made: Conversation, sent: list[Body], old_tools: Sequence[Body] = (), new_tools: Sequence[Body] = ()
    ) -> MissCause | None:
        stored = turn_of(renderer, made.stored, old_tools, reply=made.reply if made.told else None)
        now = turn_of(renderer, sent, new_tools)
        shared = common_prefix(id_array(stored.ids), id_array(now.prompt_ids))
        return None if shared == len(stored.ids) else name_cause(difference(stored, now, shared)).cause

    return run


def with_text(message: Body, text: str) -> Body:
    return {**message, "content": text}


@FEW
@given(conversations())
def test_what_only_adds_breaks_nothing(named: Named, made: Conversation) -> None:
    assert named(made, made.sent) is None


@FEW
@given(conversations(), st.data())
def test_another_text_in_an_older_message_is_an_edit(
    named: Named, made: Conversation, data: st.DataObject
) -> None:
    sent = made.sent
    index = data.draw(st.integers(1, len(made.stored) - 2))
    sent[index] = with_text(sent[index], "Something else stands here, without any of those words.")
    assert named(made, sent) is Cause.EDITED_MIDDLE


@FEW
@given(conversations(), st.data())
def test_a_head_that_was_cut_off_is_trimmed_history(
    named: Named, made: Conversation, data: st.DataObject
) -> None:
    keeps = data.draw(st.integers(2, len(made.stored) - 1))
    assert named(made, [made.stored[0], *made.sent[keeps:]]) is Cause.TRIMMED_HISTORY


@FEW
@given(conversations(), st.data())
def test_a_message_put_among_the_old_ones_is_an_edit(
    named: Named, made: Conversation, data: st.DataObject
) -> None:
    index = data.draw(st.integers(1, len(made.stored) - 1))
    said = data.draw(st.sampled_from((user("By the way, it rains."), assistant("Noted."))))
    assert named(made, [*made.sent[:index], said, *made.sent[index:]]) is Cause.EDITED_MIDDLE


@FEW
@given(conversations(), st.data())
def test_a_number_that_changed_is_a_counter_where_no_model_wrote_it(
    named: Named, made: Conversation, data: st.DataObject
) -> None:
    sent = made.sent
    index = data.draw(st.integers(1, len(made.stored) - 1))
    text = str(sent[index]["content"])
    sent[index] = with_text(sent[index], text.replace(" number ", " number 7") if text else "Something.")
    written = sent[index]["role"] == "assistant"
    assert named(made, sent) is (Cause.EDITED_MIDDLE if written else Cause.COUNTER)


@FEW
@given(conversations(), st.permutations(["look", "list", "move"]))
def test_tools_in_another_order_are_that_whatever_follows(
    named: Named, made: Conversation, names: list[str]
) -> None:
    old, new = [tool(name) for name in sorted(names)], [tool(name) for name in names]
    assert named(made, made.sent, old, new) is (None if old == new else Cause.TOOL_ORDER)


@FEW
@given(conversations(), st.booleans(), st.booleans())
def test_a_bar_that_is_taken_out_again_is_ephemeral(
    named: Named, made: Conversation, whole: bool, again: bool
) -> None:
    bars = [f"<status>\nstep: {step}\ncwd: /{place}\n</status>" for step, place in ((1, "a"), (2, "bb"))]

    def closed(messages: list[Body], bar: str) -> list[Body]:
        if whole:
            return [*messages, user(bar)]
        return [*messages[:-1], with_text(messages[-1], f"{messages[-1]['content']}\n\n{bar}")]

    sent = closed(made.sent, bars[1]) if again else made.sent
    made.stored = closed(made.stored, bars[0])
    assert named(made, sent) is Cause.EPHEMERAL


@FEW
@given(conversations())
def test_a_clock_that_is_taken_out_again_is_a_clock(named: Named, made: Conversation) -> None:
    sent, last = made.sent, made.stored[-1]
    made.stored[-1] = with_text(last, f"{last['content']}\nCurrent time: 2026-03-02T09:00:37.")
    assert named(made, sent) is Cause.CLOCK


@FEW
@given(conversations())
def test_a_last_message_that_goes_on_has_grown(named: Named, made: Conversation) -> None:
    last = made.stored[-1]
    grown = with_text(last, f"{last['content']}\nassistant: {made.reply['content']}\nuser: and then?")
    assert named(made, [*made.stored[:-1], grown]) is Cause.GROWN_MESSAGE


@FEW
@given(conversations())
def test_a_text_that_grows_behind_a_number_in_its_head_has_a_counter(
    named: Named, made: Conversation
) -> None:
    def flat(messages: list[Body]) -> list[Body]:
        lines = [f"{message['role']}: {message['content']}" for message in messages[1:]]
        return [messages[0], user("\n".join([f"The last {len(lines)} messages:", *lines]))]

    stored, sent = flat(made.stored), flat(made.sent)
    made.stored, made.told = stored, False
    assert named(made, sent) is Cause.COUNTER


@given(st.lists(st.sampled_from("abc"), max_size=6), st.lists(st.sampled_from("abc"), max_size=6))
def test_an_edit_is_where_two_sequences_part_and_where_they_meet_again(
    old: list[str], new: list[str]
) -> None:
    edit = first_edit(old, new)
    if edit is None:
        assert new[: len(old)] == old
        return
    assert edit.stored_from == edit.sent_from
    assert old[: edit.stored_from] == new[: edit.sent_from]
    assert old[edit.stored_from : edit.stored_from + 1] != new[edit.sent_from : edit.sent_from + 1]
    if edit.resumes:
        assert old[edit.stored_to] == new[edit.sent_to]
    else:
        assert not set(old[edit.stored_from :]) & set(new[edit.sent_from :])


@given(st.text("ab \n", max_size=12), st.text("ab \n", max_size=12))
def test_a_fragment_stands_at_one_place_of_both_texts(old: str, new: str) -> None:
    if old == new:
        return
    start, was, now, _ = first_fragment(old, new)
    assert old[:start] == new[:start]
    assert old[start:].startswith(was)
    assert new[start:].startswith(now)
    assert was != now
