"""What a template does that its users would want to know, each found by rendering and told in a sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from serving.chat.dialect import JsonObject
from serving.chat.probe import TemplateFacts
from serving.chat.survey.conversations import (
    LATE_TEXT,
    SYSTEM_TEXT,
    Habits,
    Probe,
    Spelling,
    steps,
    user,
)
from serving.chat.survey.proof import Break, Place, Proof, TurnRenderer
from serving.errors import UsageError


class Habit(StrEnum):
    """Things templates do that cost tokens, or lose text without a word."""

    PRINTS_TODAY = "prints today's date"
    PRINTS_DATE_STRING = "prints date_string"
    SYSTEM_REFUSED = "system message refused"
    TOOLS_NOT_SHOWN = "tools not shown"
    CALL_DROPPED = "tool call dropped"
    SECOND_CALL_DROPPED = "second parallel call dropped"
    RESULT_DROPPED = "tool result dropped"
    RESULT_AS_USER = "tool result shown as a user turn"
    ARGUMENTS_QUOTED = "arguments given as text are quoted again"
    EMPTY_THINK_VANISHES = "empty think block vanishes"
    GENERATION_PROMPT_VANISHES = "generation prompt vanishes"
    THINKING_STRIPPED = "thinking stripped from history"
    DEVELOPER_UNKNOWN = "developer role unknown"
    LATE_TEXT_DROPPED = "late instruction dropped"


class Finding(BaseModel):
    """One habit, and the sentence that says where and how far."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    habit: Habit
    sentence: str


def find_habits(
    renderer: TurnRenderer,
    facts: TemplateFacts,
    habits: Habits,
    proofs: Mapping[Probe, Sequence[Proof]],
    switches: Mapping[str, bool],
) -> tuple[Finding, ...]:
    """Every habit of a template; `proofs` are those of the probes that apply to it.

    `switches` are what turns thinking on.
    """
    found = [
        *_dates(renderer, facts, habits),
        *_tools(renderer, facts, habits, proofs),
        *_thinking(renderer, facts, habits, proofs, switches),
        *_roles(facts, habits, proofs),
    ]
    return tuple(found)


def _finding(habit: Habit, sentence: str) -> Finding:
    return Finding(habit=habit, sentence=sentence)


def _dates(renderer: TurnRenderer, facts: TemplateFacts, habits: Habits) -> Iterator[Finding]:
    head: list[JsonObject] = [{"role": "system", "content": SYSTEM_TEXT}] if habits.takes_system else []
    mark = "zqxdate"
    for tools, condition in (([], ""), (steps(Probe.TOOL_LOOP, habits)[0].tools, " where tools are given")):
        try:
            today = renderer.text([*head, user(1)], tools, clock=mark)
            passed = renderer.text([*head, user(1)], tools, given={"date_string": mark})
        except UsageError:
            continue  # the probes say what is refused
        if mark in today:
            place = "the head" if today.index(mark) < today.index("Question text 1?") else "the end"
            yield _finding(
                Habit.PRINTS_TODAY,
                f"Today's date stands in {place}{condition}, {today.index(mark)} characters in: at midnight "
                "everything after it is lost.",
            )
        if mark in passed:
            yield _finding(
                Habit.PRINTS_DATE_STRING,
                f"`date_string` is printed{condition} {passed.index(mark)} characters in: whoever passes today's "
                "date there loses everything after it once a day.",
            )
        if mark in today or mark in passed:
            return


def _tools(
    renderer: TurnRenderer, facts: TemplateFacts, habits: Habits, proofs: Mapping[Probe, Sequence[Proof]]
) -> Iterator[Finding]:
    if not facts.renders_tools:
        yield _finding(Habit.TOOLS_NOT_SHOWN, "The list of tools reaches no prompt.")
    if facts.renders_tool_calls is False:
        yield _finding(
            Habit.CALL_DROPPED,
            "A tool call in the history is left out without a word: the model cannot see it.",
        )
    parallel = proofs.get(Probe.PARALLEL_TOOLS, ())
    if facts.renders_tool_calls and any("argument text 2" in proof.not_shown for proof in parallel):
        yield _finding(Habit.SECOND_CALL_DROPPED, "Of two calls in one answer only the first is shown.")
    if facts.renders_tool_results is False:
        yield _finding(Habit.RESULT_DROPPED, "What a tool answered is left out without a word.")
    elif facts.renders_tool_results and _result_as_user(renderer, habits):
        yield _finding(
            Habit.RESULT_AS_USER,
            "What a tool answered stands behind the same header as what a person says.",
        )
    if facts.renders_tool_calls and _quotes_again(renderer, habits):
        yield _finding(
            Habit.ARGUMENTS_QUOTED,
            "Arguments given as JSON text come out as a quoted string: give the template an object.",
        )


def _result_as_user(renderer: TurnRenderer, habits: Habits) -> bool:
    """Whether the header before a tool's answer is the one before a question."""
    talk = steps(Probe.PLAIN_TURNS, habits)[0]
    loop = steps(Probe.TOOL_LOOP, habits)[0]
    try:
        questions = renderer.text(talk.following)
        answered = renderer.text(loop.following, loop.tools)
    except UsageError:
        return False  # refused, so shown as nothing; the probes say so
    before_first = questions[: questions.index("Question text 1?")]
    before_second = questions[: questions.index("Question text 2?")]
    header = _common_suffix(before_first, before_second).strip()
    between = answered[answered.index("Question text 1?") : answered.index("Result text 1.")]
    return bool(header) and header in between


def _quotes_again(renderer: TurnRenderer, habits: Habits) -> bool:
    step = steps(Probe.TOOL_LOOP, habits, Spelling.ARGUMENTS_AS_TEXT)[0]
    quoted = json.dumps(json.dumps({"word": "argument text 1"}))
    try:
        return quoted in renderer.text(step.following, step.tools)
    except UsageError:
        return False  # refused rather than quoted: the deviations say so


_EMPTY_THINK = re.compile(r"<think>\s*</think>")
_SENT_BACK = {
    Probe.ECHOED: "earlier answers",
    Probe.ECHOED_LOOP: "a running tool loop",
    Probe.ECHOED_AFTER_LOOP: "a loop that a new question ended",
}
_WITHOUT_REASONING = (Probe.PLAIN_TURNS, Probe.TOOL_LOOP, Probe.THINKING_OFF, Probe.THINKING_OFF_LOOP)


def _thinking(
    renderer: TurnRenderer,
    facts: TemplateFacts,
    habits: Habits,
    proofs: Mapping[Probe, Sequence[Proof]],
    switches: Mapping[str, bool],
) -> Iterator[Finding]:
    for habit, what, probes in (
        (
            Habit.EMPTY_THINK_VANISHES,
            "An empty think block stands",
            _probes_that_lose(proofs, _is_empty_think),
        ),
        (
            Habit.GENERATION_PROMPT_VANISHES,
            "An open think block stands",
            _probes_that_lose(proofs, _is_prefill),
        ),
    ):
        if probes:
            yield _finding(
                habit,
                f"{what} where the model goes on and not in the history ({', '.join(probes)}): what each turn "
                "generates is computed again in the next.",
            )
    if Probe.ECHOED not in proofs:
        return
    shown = {
        where: [f"Reasoning text {number}." in text for number in (1, 2)]
        for probe, where in _SENT_BACK.items()
        if (text := _history(renderer, probe, habits, switches)) is not None
    }
    if any(not all(kept) for kept in shown.values()):
        told = ", ".join(f"{_of(kept)} of {where}" for where, kept in shown.items())
        yield _finding(
            Habit.THINKING_STRIPPED, f"Of the reasoning that was sent back the prompt shows {told}."
        )


def _probes_that_lose(proofs: Mapping[Probe, Sequence[Proof]], lost: Callable[[Break], bool]) -> list[str]:
    return [
        probe.value
        for probe in _WITHOUT_REASONING
        if any(proof.difference and lost(proof.difference) for proof in proofs.get(probe, ()))
    ]


def _is_empty_think(difference: Break) -> bool:
    # The difference may lie inside the first tag: other markup begins with a bracket too.
    return _EMPTY_THINK.search(difference.before[-2:] + difference.was) is not None


def _is_prefill(difference: Break) -> bool:
    return difference.place is Place.GENERATION_PROMPT and not _is_empty_think(difference)


def _history(
    renderer: TurnRenderer, probe: Probe, habits: Habits, switches: Mapping[str, bool]
) -> str | None:
    last = steps(probe, habits)[-1]
    try:
        return renderer.text(last.following, last.tools, given=switches)
    except UsageError:
        return None  # no history of that kind can be shown


def _of(kept: Sequence[bool]) -> str:
    if all(kept) or not any(kept):
        return "all" if all(kept) else "none"
    return f"turn {', '.join(str(number) for number, shown in enumerate(kept, 1) if shown)} only"


def _roles(
    facts: TemplateFacts, habits: Habits, proofs: Mapping[Probe, Sequence[Proof]]
) -> Iterator[Finding]:
    if not habits.takes_system:
        yield _finding(
            Habit.SYSTEM_REFUSED, "A system message is refused: instructions go into the first question."
        )
    if not facts.accepts_developer:
        yield _finding(
            Habit.DEVELOPER_UNKNOWN,
            "The template does not know the role `developer`: vLLM joins such a message to the system message "
            "at the head, and everything after the head is lost.",
        )
    dropped = [
        probe.value
        for probe in (Probe.DEVELOPER, Probe.LATE_SYSTEM)
        if any(LATE_TEXT in proof.not_shown for proof in proofs.get(probe, ()))
    ]
    if dropped:
        yield _finding(Habit.LATE_TEXT_DROPPED, f"Left out without a word: {', '.join(dropped)}.")


def _common_suffix(left: str, right: str) -> str:
    length = 0
    while length < min(len(left), len(right)) and left[-1 - length] == right[-1 - length]:
        length += 1
    return left[len(left) - length :]
