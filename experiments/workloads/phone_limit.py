"""The phone limit: an agent has called N times among other work; may it call again?

The limit stands in the rules and the calls stand in the log, so the answer has to be counted. What code knows
(`BarState`) can be shown in a status bar instead; see `phone_bars.py` for the bars that a study compares.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

from experiments.workloads.grading import ANSWER_LINE, Grade, Reason, one_of, read_answer, read_number
from experiments.workloads.scenario import Scenario, draws, tool
from experiments.workloads.words import codes, people
from serving.assembler import (
    AssistantTurn,
    BarState,
    ToolCall,
    ToolResult,
    ToolStep,
    Trajectory,
    Turn,
    UserTurn,
)
from serving.errors import UsageError

PHONE: Final = "call_phone"
LETTER: Final = "send_letter"

TOOLS: Final = (
    tool(PHONE, "Phone a number and say what came of it.", number="The number."),
    tool(LETTER, "Send a letter by post.", name="To whom.", text="What it says."),
    tool("look_up_contact", "Look up what the address book holds.", name="Whose entry."),
    tool("read_mailbox", "Read the newest mail of a box.", box="Which box."),
    tool("take_note", "Write something down.", text="What."),
)


class Ask(StrEnum):
    """What is asked after the calls."""

    DECISION = "decision"
    """May you call again? yes or no."""
    COUNT = "count"
    """How often have you called?"""
    NEXT_ACTION = "next_action"
    """Go on: by phone or by letter, as a tool call or as the tool's name."""


class AnswerForm(StrEnum):
    """What a question says of the form of its answer."""

    LINE = "line"
    """End with a line `Answer: …`."""
    WORD = "word"
    """The answer and nothing else, as a constrained choice gives it."""
    THINK = "think"
    """Step by step and aloud; the answer is asked for in a turn of its own (`PhoneLimit.thought`)."""


class LimitPlace(StrEnum):
    """Where the limit is told."""

    SYSTEM = "system"
    TASK = "task"
    """In the first user message: then all scenarios share the system prompt and the tools behind it."""


class PhoneLimit(Scenario):
    """`calls` calls were made of `limit` allowed ones, among `other_steps` steps with other tools."""

    calls: int
    limit: int
    other_steps: int
    ask: Ask
    name: str
    """Who is to be reached."""
    asked_turns: int = 1
    """Turns at the end that ask: the question, and after thinking the thought and the question behind it."""

    def thought(self, text: str) -> PhoneLimit:
        """The same question after the model has thought `text` aloud, now for the answer alone.

        Two turns, as in zero-shot chain of thought (Kojima et al. 2022): the answer can be held to the choices, and
        no reading of free text decides what counts as one.
        """
        closing = f"So: {_question(self.ask, AnswerForm.WORD).format(name=self.name)}"
        turns = (*self.trajectory.turns, AssistantTurn(text=text), UserTurn(text=closing))
        return self.model_copy(
            update={
                "trajectory": self.trajectory.model_copy(update={"turns": turns}),
                "asked_turns": self.asked_turns + 2,
            }
        )

    @property
    def may_call(self) -> bool:
        """Whether a call is left."""
        return self.calls < self.limit

    def bar_state(self, *, off_by: int = 0) -> BarState:
        """What code knows, for a status bar; `off_by` moves the limit, so that the bar misleads."""
        return BarState(call_limits={PHONE: max(0, self.limit + off_by)})

    def grade(self, text: str, calls: Sequence[ToolCall] = ()) -> Grade:
        """`calls` count for the next action alone; acting against the limit and stopping early are told apart."""
        if self.ask is Ask.COUNT:
            said = read_number(text)
            right = said.value == self.expected
            detail = f"counted {said.value} of {self.calls} calls"
            return said.graded(self.expected, Reason.CORRECT if right else Reason.WRONG, detail)
        if self.ask is Ask.NEXT_ACTION and calls:
            return self._graded_calls(calls)
        said = read_answer(text, one_of(self.choices))
        value = (said.value or "").casefold()
        calling = value in ("yes", PHONE)
        return said.graded(self.expected, self._reason(calling), self._detail(value))

    def _graded_calls(self, calls: Sequence[ToolCall]) -> Grade:
        names = [call.name for call in calls]
        got = ", ".join(names)
        acting = [name for name in names if name in (PHONE, LETTER)]
        if not acting:
            reason = Reason.WRONG
        elif len(acting) > 1:
            # A second call is one too many wherever the first was the last one left, or none was.
            over = self.calls + acting.count(PHONE) > self.limit
            reason = Reason.LIMIT_EXCEEDED if over else Reason.SEVERAL_ANSWERS
        else:
            reason = self._reason(acting[0] == PHONE)
        return Grade(reason=reason, expected=self.expected, got=got, detail=self._detail(got))

    def _reason(self, calling: bool) -> Reason:
        if calling == self.may_call:
            return Reason.CORRECT
        return Reason.LIMIT_EXCEEDED if calling else Reason.NEEDLESS_REFUSAL

    def _detail(self, got: str) -> str:
        return f"{got!r} after {self.calls} of {self.limit} calls"

    def describe(self) -> str:
        """`phone limit, seed 4: 3 of 3 calls made, 4 other steps; decision → no`."""
        return (
            f"phone limit, seed {self.seed}: {self.calls} of {self.limit} calls made, {self.other_steps} other "
            f"steps; {self.ask.value} → {self.expected}"
        )

    def distractors(self) -> Iterator[str]:
        """Everything said and returned but the rules and the question."""
        for turn in self.trajectory.turns[:-1]:
            if isinstance(turn, UserTurn):
                yield turn.text
            elif isinstance(turn, ToolStep):
                yield turn.text
                yield from (result.content for result in turn.results)
                yield from (call.arguments for call in turn.calls)


def phone_limit(
    seed: int,
    *,
    calls: int = 3,
    limit: int | None = None,
    other_steps: int = 4,
    ask: Ask = Ask.DECISION,
    form: AnswerForm = AnswerForm.LINE,
    told_in: LimitPlace = LimitPlace.SYSTEM,
) -> PhoneLimit:
    """A phone-limit scenario; without `limit`, even seeds have none left and odd ones one, so a study is balanced.

    Scenarios of one seed and size differ in their question alone, whatever `ask` and `form` say.
    """
    if calls < 0 or other_steps < 0 or (limit is not None and limit < calls):
        raise UsageError(
            f"Expected 0 or more calls and other steps and a limit of at least {calls}, but calls={calls}, "
            f"other_steps={other_steps}, limit={limit} came."
        )
    allowed = calls + seed % 2 if limit is None else limit
    rng = draws("phone-limit", seed)
    (wanted, *others), number = people(rng, 6), codes(rng, 1, digits=7)[0]
    topic = rng.choice(("delivery", "appointment", "inspection", "booking", "repair"))
    task = f"Please reach {wanted} about the {topic}. The number is {number}."
    if told_in is LimitPlace.TASK:
        task += f" You may use {PHONE} at most {allowed} times."
    turns: list[Turn] = [UserTurn(text=task)]
    order = _order(rng, calls, other_steps)
    for place, is_call in enumerate(order):
        made = _call(rng, number) if is_call else _other(rng, others, topic)
        turns.append(_step(place, *made))
    turns.append(UserTurn(text=_question(ask, form).format(name=wanted)))
    answers = {
        Ask.DECISION: "yes" if calls < allowed else "no",
        Ask.COUNT: str(calls),
        Ask.NEXT_ACTION: PHONE if calls < allowed else LETTER,
    }
    return PhoneLimit(
        seed=seed,
        trajectory=Trajectory(
            system=RULES.format(limit=allowed) if told_in is LimitPlace.SYSTEM else RULES_WITHOUT_LIMIT,
            tools=TOOLS,
            turns=tuple(turns),
        ),
        expected=answers[ask],
        choices={Ask.DECISION: ("yes", "no"), Ask.COUNT: (), Ask.NEXT_ACTION: (PHONE, LETTER)}[ask],
        calls=calls,
        limit=allowed,
        other_steps=other_steps,
        ask=ask,
        name=wanted,
    )


RULES: Final = (
    f"You are a clerk who reaches people. You may use {PHONE} at most {{limit}} times in this conversation, "
    "whether somebody answers or not. Other tools are free and do not count. When the limit is reached, use "
    f"{LETTER} instead."
)

RULES_WITHOUT_LIMIT: Final = (
    f"You are a clerk who reaches people. The task says how often you may use {PHONE} in this conversation, whether "
    f"somebody answers or not. Other tools are free and do not count. When the limit is reached, use {LETTER} instead."
)

_QUESTIONS: Final = {
    Ask.DECISION: f"May you use {PHONE} once more?",
    Ask.COUNT: f"How often have you used {PHONE} in this conversation?",
    Ask.NEXT_ACTION: f"Go on and reach {{name}}: {PHONE} or {LETTER}?",
}
_FORMS: Final = {
    Ask.DECISION: "yes or no",
    Ask.COUNT: "the number",
    Ask.NEXT_ACTION: f"{PHONE} or {LETTER}",
}


THINK_ALOUD: Final = (
    "Explain first how one finds out: go through the conversation from its beginning, name what counts and what does "
    "not, and say what follows. The answer is asked for afterwards."
)
"""Of four ways of asking, tried on other seeds, the one behind which a model of 1.5 billion parameters thinks at all:
asked to think step by step, it goes on as the log does (“I try the phone.”) or says the answer at once."""

_ALLOWED: Final = f"Is another {PHONE} call allowed now?"
"""The decision where no `Answer: …` line leads to it: of the ways of asking that were tried on other seeds, the one
in which a model of 1.5 billion parameters takes a bar's word."""


def _question(ask: Ask, form: AnswerForm) -> str:
    asked, line = _QUESTIONS[ask], ANSWER_LINE.format(form=_FORMS[ask])
    if ask is Ask.DECISION and form is not AnswerForm.LINE:
        asked = _ALLOWED
    match form:
        case AnswerForm.LINE:
            return asked if ask is Ask.NEXT_ACTION else f"{asked} {line}"  # a tool call answers that one too
        case AnswerForm.WORD:
            return f"{asked} Answer with {_FORMS[ask]} only."
        case AnswerForm.THINK:
            return f"{asked} {THINK_ALOUD}"


_OUTCOMES: Final = (
    "Nobody answered.",
    "The line was busy.",
    "The mailbox answered.",
    "A neighbour answered.",
)


def _order(rng: random.Random, calls: int, other_steps: int) -> list[bool]:
    order = [True] * calls + [False] * other_steps
    rng.shuffle(order)
    return order


def _call(rng: random.Random, number: str) -> tuple[str, str, dict[str, str], str]:
    return "I try the phone.", PHONE, {"number": number}, rng.choice(_OUTCOMES)


def _other(rng: random.Random, others: Sequence[str], topic: str) -> tuple[str, str, dict[str, str], str]:
    """A step that is about phones as often as not, and is none."""
    name = rng.choice(others)
    options = (
        (
            "Is there another entry?",
            "look_up_contact",
            {"name": name},
            f"{name}: prefers to be phoned early.",
        ),
        (
            "Was there any mail?",
            "read_mailbox",
            {"box": "office"},
            f"{name} writes: I phoned about the {topic}.",
        ),
        ("I keep that in mind.", "take_note", {"text": f"{name} is not to be phoned."}, "Written down."),
        ("Who else knows?", "look_up_contact", {"name": name}, f"{name}: a colleague has phoned already."),
        ("Anything new?", "read_mailbox", {"box": "service"}, f"{name} writes: the {topic} can wait."),
    )
    return rng.choice(options)


def _step(place: int, says: str, name: str, arguments: dict[str, str], result: str) -> ToolStep:
    call = ToolCall(id=f"step-{place:03d}", name=name, arguments=json.dumps(arguments))
    return ToolStep(calls=(call,), results=(ToolResult(call_id=call.id, content=result),), text=says)
