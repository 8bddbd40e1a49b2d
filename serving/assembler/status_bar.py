"""The status bar: what code knows of a run, in a few lines that always have the same form.

Built from the whole log of turns and from state that the caller keeps; no model writes it. Words of outside
origin (tool names, messages of failures, TODO texts, directories) are quoted (`quoting.py`), so no line, tag or
added token in them is live. A bar is a lossy projection: `Bar.answers` says which questions it can answer,
and only within those may raw history go (`may_drop_history`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum, StrEnum
from typing import Annotated, Final

from pydantic import Field

from serving.assembler.break_even import BarMode
from serving.assembler.items import ContextItem
from serving.assembler.kinds import Kind
from serving.assembler.messages import ToolCall, item_of
from serving.assembler.observations import returned
from serving.assembler.payloads import StatusBar, ToolResult, ToolStep
from serving.assembler.quoting import quoted, quoted_short
from serving.assembler.record import SORTED, Instant, Record
from serving.assembler.status_state import BarState, ErrorFacts
from serving.assembler.timestamps import moment_text
from serving.assembler.working_directory import working_directory


class Technique(StrEnum):
    """What a bar can show, each switched on its own; the order here is the order of the lines."""

    SYSTEM_STATE = "system_state"
    TIMESTAMPS = "timestamps"
    CALL_COUNTERS = "call_counters"
    TODO = "todo"
    ERRORS = "errors"


class Question(StrEnum):
    """What a bar may be asked instead of the history."""

    CURRENT_TIME = "current_time"
    WORKING_DIRECTORY = "working_directory"
    ENVIRONMENT = "environment"
    LAST_USER_TIME = "last_user_time"
    LAST_RESULT_TIME = "last_result_time"
    CALLS_MADE = "calls_made"
    CALLS_LEFT = "calls_left"
    WORK_IN_PROGRESS = "work_in_progress"
    WORK_OPEN = "work_open"
    WORK_DONE = "work_done"
    FAILED_CALLS = "failed_calls"
    FAILURE_MESSAGES = "failure_messages"
    FAILURE_ARGUMENTS = "failure_arguments"
    NEXT_ACTIONS = "next_actions"


class ErrorLevel(IntEnum):
    """How much of a failure is shown; each level adds to the one before."""

    CLASS = 1
    """Which call failed, and the class of the error."""
    MESSAGE = 2
    """What the tool returned."""
    ARGUMENTS = 3
    """What the tool was called with."""
    NEXT_ACTIONS = 4
    """What the application allows next."""


class BarPolicy(Record):
    """Which techniques are on and how much they may say."""

    techniques: Annotated[frozenset[Technique], SORTED] = Field(default=frozenset(Technique), min_length=1)
    error_level: ErrorLevel = ErrorLevel.MESSAGE
    errors_shown: int = Field(default=3, ge=1)
    """The latest ones; how many more there are is said."""
    characters: int = Field(default=200, ge=1)
    """Of one message or one argument text; what is missing is said."""
    mode: BarMode = BarMode.REPLACE


class Bar(Record):
    """A bar's text, without its tag, and the questions that this very text answers."""

    text: str = Field(min_length=1)
    answers: tuple[Question, ...]
    """Sorted; a question is here only when nothing that belongs to its answer is unknown or cut."""

    def item(self, item_id: str = "status-bar") -> ContextItem:
        """The bar as an item."""
        return ContextItem(id=item_id, payload=StatusBar(text=self.text))


class _Section(Record):
    lines: tuple[str, ...]
    answers: frozenset[Question] = frozenset()


def build_bar(history: Sequence[ContextItem], state: BarState, policy: BarPolicy) -> Bar:
    """The bar after `history`, which must be the whole log (not what a compaction or a mask left of it).

    Pure: equal arguments give equal bytes, whatever the order of the mappings in `state`.
    """
    builders = {
        Technique.SYSTEM_STATE: lambda: _system(history, state),
        Technique.TIMESTAMPS: lambda: _timestamps(history, state),
        Technique.CALL_COUNTERS: lambda: _counters(history, state),
        Technique.TODO: lambda: _todo(state),
        Technique.ERRORS: lambda: _errors(history, state, policy),
    }
    sections = [builders[technique]() for technique in Technique if technique in policy.techniques]
    return Bar(
        text="\n".join(line for section in sections for line in section.lines),
        answers=tuple(sorted(question for section in sections for question in section.answers)),
    )


class Placement(Record):
    """Where a bar goes in the next request."""

    candidates: tuple[ContextItem, ...]
    """To add to the request's candidates."""
    history: tuple[ContextItem, ...]
    """To send as the request's history, and to keep as the log to go on from."""


def place_bar(history: Sequence[ContextItem], bar: Bar, mode: BarMode) -> Placement:
    """`history` and the bar as `mode` wants them; `advise` (`break_even.py`) says which mode is cheaper."""
    return appended(history, bar) if mode is BarMode.APPEND else replaced(history, bar)


def replaced(history: Sequence[ContextItem], bar: Bar) -> Placement:
    """The bar as a candidate, which the layout puts last, and a history without any earlier bar."""
    kept = tuple(item for item in history if item.kind is not Kind.STATUS_BAR)
    return Placement(candidates=(bar.item(),), history=kept)


def appended(history: Sequence[ContextItem], bar: Bar) -> Placement:
    """The bar at the end of the history; the bars before it keep their places, ids and bytes."""
    number = sum(item.kind is Kind.STATUS_BAR for item in history)
    return Placement(candidates=(), history=(*history, bar.item(f"status-bar-{number:03d}")))


class DropRefusal(StrEnum):
    """Why raw history has to stay."""

    NOTHING_DECLARED = "nothing_declared"
    """The policy names no question, so nobody said what the history is needed for."""
    QUESTION_OUTSIDE = "question_outside"
    """The bar does not answer a declared question."""


class DropVerdict(Record):
    """Whether raw history may go while this bar stands for it."""

    refusal: DropRefusal | None
    """None: it may."""
    outside: tuple[Question, ...] = ()
    """The declared questions that only the history answers."""

    @property
    def allowed(self) -> bool:
        """Whether nothing speaks against it."""
        return self.refusal is None


def may_drop_history(declared: frozenset[Question], bar: Bar) -> DropVerdict:
    """Whether every question that a policy declared stays inside the bar; ask again for every new bar."""
    if not declared:
        return DropVerdict(refusal=DropRefusal.NOTHING_DECLARED)
    outside = tuple(sorted(declared.difference(bar.answers)))
    return DropVerdict(refusal=DropRefusal.QUESTION_OUTSIDE if outside else None, outside=outside)


_UNKNOWN: Final = "unknown"
_NAME_CHARACTERS: Final = 64
_PATH_CHARACTERS: Final = 400


def _system(history: Sequence[ContextItem], state: BarState) -> _Section:
    system = state.system
    cwd = system.cwd
    if system.shell_tool is not None:
        cwd = working_directory(history, system.shell_tool, system.cwd, system.home)
    environment = {"os": system.os, "shell": system.shell, "python": system.python}
    known = {
        Question.CURRENT_TIME: state.now is not None,
        Question.WORKING_DIRECTORY: cwd is not None and len(cwd) <= _PATH_CHARACTERS,
        Question.ENVIRONMENT: None not in environment.values(),
    }
    return _Section(
        lines=(
            f"time: {_moment(state.now)}",
            f"cwd: {_known(cwd)}",
            *(f"{name}: {_known(value)}" for name, value in environment.items()),
        ),
        answers=_answered(known),
    )


def _timestamps(history: Sequence[ContextItem], state: BarState) -> _Section:
    users = [item.id for item in history if item.kind is Kind.USER_TURN]
    results = [one.owner for one in returned(history)]
    last = {
        Question.LAST_USER_TIME: ("last user message", users[-1:]),
        Question.LAST_RESULT_TIME: ("last tool result", results[-1:]),
    }
    lines, answers = [], set()
    for question, (name, owners) in last.items():
        if not owners:
            lines.append(f"{name}: none")
            answers.add(question)
            continue
        # A result may be timed alone or with its whole step.
        moment = state.times.get(owners[0], state.times.get(item_of(owners[0])))
        lines.append(f"{name}: {_moment(moment)}")
        if moment is not None:
            answers.add(question)
    return _Section(lines=tuple(lines), answers=frozenset(answers))


def _counters(history: Sequence[ContextItem], state: BarState) -> _Section:
    steps = (item.payload for item in history if isinstance(item.payload, ToolStep))
    made = Counter(call.name for step in steps for call in step.calls)
    names = sorted(made.keys() | state.call_limits.keys())
    whole = all(len(name) <= _NAME_CHARACTERS for name in names)
    known = {
        Question.CALLS_MADE: whole,
        Question.CALLS_LEFT: whole and all(name in state.call_limits for name in names),
    }
    lines = [_counter(name, made[name], state.call_limits.get(name)) for name in names]
    return _Section(lines=tuple(lines) or ("calls: none",), answers=_answered(known))


def _counter(name: str, made: int, limit: int | None) -> str:
    if limit is None:
        return f"calls of {quoted_short(name, _NAME_CHARACTERS)}: {made}"
    return f"calls of {quoted_short(name, _NAME_CHARACTERS)}: {made}/{limit}{'' if made < limit else ' (none left)'}"


def _todo(state: BarState) -> _Section:
    lines = [f"todo {item.id} [{item.status.value}]: {quoted(item.text)}" for item in state.todo]
    return _Section(
        lines=tuple(lines) or ("todo: none",),
        answers=frozenset({Question.WORK_IN_PROGRESS, Question.WORK_OPEN, Question.WORK_DONE}),
    )


def _errors(history: Sequence[ContextItem], state: BarState, policy: BarPolicy) -> _Section:
    facts = {error.call_id: error for error in state.errors}
    failed = [(one.call, one.result) for one in returned(history) if one.result.failed]
    shown = failed[-policy.errors_shown :]
    lines = [_error(call, result, facts.get(call.id), policy) for call, result in shown]
    if hidden := len(failed) - len(shown):
        lines.insert(0, f"earlier failures: {hidden}")
    level = policy.error_level
    whole = not hidden and all(
        len(name) <= _NAME_CHARACTERS for call, _ in shown for name in (call.name, call.id)
    )
    known = {
        Question.FAILED_CALLS: whole,
        Question.FAILURE_MESSAGES: whole
        and level >= ErrorLevel.MESSAGE
        and all(len(result.content) <= policy.characters for _, result in shown),
        Question.FAILURE_ARGUMENTS: whole
        and level >= ErrorLevel.ARGUMENTS
        and all(len(call.arguments) <= policy.characters for call, _ in shown),
        Question.NEXT_ACTIONS: whole
        and level >= ErrorLevel.NEXT_ACTIONS
        and all(call.id in facts for call, _ in shown),
    }
    return _Section(
        lines=tuple(lines) or ("errors: none",),
        answers=_answered(known),
    )


def _error(call: ToolCall, result: ToolResult, facts: ErrorFacts | None, policy: BarPolicy) -> str:
    error_class = _UNKNOWN if facts is None else quoted(facts.error_class)
    name, call_id = (quoted_short(text, _NAME_CHARACTERS) for text in (call.name, call.id))
    parts = [f"error in {name} ({call_id}): {error_class}"]
    if policy.error_level >= ErrorLevel.MESSAGE:
        parts.append(f"message {quoted_short(result.content, policy.characters)}")
    if policy.error_level >= ErrorLevel.ARGUMENTS:
        parts.append(f"arguments {quoted_short(call.arguments, policy.characters)}")
    if policy.error_level >= ErrorLevel.NEXT_ACTIONS:
        actions = _UNKNOWN if facts is None else ", ".join(map(quoted, facts.next_actions)) or "none"
        parts.append(f"next actions {actions}")
    return "; ".join(parts)


def _answered(known: Mapping[Question, bool]) -> frozenset[Question]:
    return frozenset(question for question, answered in known.items() if answered)


def _known(value: str | None) -> str:
    return _UNKNOWN if value is None else quoted_short(value, _PATH_CHARACTERS)


def _moment(moment: Instant | None) -> str:
    return _UNKNOWN if moment is None else moment_text(moment)
