from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console

from experiments.agent.callform import CallForm
from experiments.agent.settings import TurnSettings
from experiments.cli.chat_session import ChatParts, ChatSession, SavedCall, keyboard_lines
from serving.call import DecodeOptions
from serving.client import ErrorKind, Exchange, StreamEvent, TextDelta
from serving.errors import LabError
from tests.support.made_tools import file_toolbox
from tests.support.scripted import CONTEXT, ScriptedCaller, ScriptedStart, exchange, received


@dataclass
class Salted(ScriptedCaller):
    """Keeps the salts too, and is interrupted within the answers named in `interrupts`."""

    salts: list[str] = field(default_factory=list)
    interrupts: frozenset[int] = frozenset()

    def start(self, request, policy, decode, *, salt, faults=()):
        self.salts.append(salt)
        started = super().start(request, policy, decode, salt=salt, faults=faults)
        if len(self.started) - 1 in self.interrupts:
            started.__class__ = Interrupted
        return started


class Interrupted(ScriptedStart):
    def __iter__(self) -> Iterator[StreamEvent]:
        yield TextDelta(1, "half an ans", None)
        raise KeyboardInterrupt


class Conversation:
    def __init__(self, root: Path, *replies: Exchange, window: int = 5000, interrupts: tuple[int, ...] = ()):
        self.caller = Salted(replies, interrupts=frozenset(interrupts))
        self.out, self.saved = io.StringIO(), io.StringIO()
        self.callers_made = 0
        self.engine_error: LabError | None = None
        tools = file_toolbox(root)
        parts = ChatParts(
            new_caller=self._new_caller,
            tools=tools,
            offered=tools.specs,
            settings=TurnSettings(
                context=CONTEXT, window=window, decode=DecodeOptions(max_tokens=10), salt="unused"
            ),
            system="Be brief.",
            show_tokens=lambda rendered: [],
            check=self._check,
        )
        console = Console(file=self.out, soft_wrap=True, highlight=False)
        self.session = ChatSession(parts, console, always_show_tokens=False, save=self.saved)

    def _new_caller(self) -> Salted:
        self.callers_made += 1
        return self.caller

    def _check(self) -> None:
        if self.engine_error is not None:
            raise self.engine_error

    def say(self, *lines: str) -> int:
        return self.session.run(iter(lines))

    def sent(self, call: int) -> list[str | None]:
        return [message.content for message in self.caller.started[call].packet.messages]


def test_a_conversation_goes_on_from_turn_to_turn(tmp_path: Path) -> None:
    talk = Conversation(tmp_path, exchange("one"), exchange("two"))
    assert talk.say("first\n", "\n", "second\n") == 0
    assert talk.sent(1) == ["Be brief.", "first", "one", "second"]
    assert len(set(talk.caller.salts)) == 1
    assert "one" in talk.out.getvalue()


def test_tools_run_and_their_results_are_shown(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha\n")
    talk = Conversation(
        tmp_path, exchange("", received("head", '{"path": "a.txt"}')), exchange("It is alpha.")
    )
    assert talk.say("What is in a.txt?") == 0
    assert '⚙ head({"path": "a.txt"})\nalpha\n' in talk.out.getvalue()


def test_an_interrupted_answer_is_forgotten_and_the_salt_changes(tmp_path: Path) -> None:
    talk = Conversation(tmp_path, exchange("one"), exchange(""), exchange("three"), interrupts=(1,))
    assert talk.say("first", "second", "third") == 1
    assert talk.caller.started[1].cancelled
    assert talk.sent(2) == ["Be brief.", "first", "one", "third"]
    assert talk.caller.salts[0] == talk.caller.salts[1] != talk.caller.salts[2]
    assert "half an ans\n! stopped" in talk.out.getvalue()
    assert "cold cache" in talk.out.getvalue()


def test_a_failed_call_is_told_saved_and_forgotten(tmp_path: Path) -> None:
    talk = Conversation(tmp_path, exchange("half", error=ErrorKind.CUT), exchange("fine"))
    assert talk.say("first", "second") == 1
    assert "! The stub broke the call" in talk.out.getvalue()
    assert talk.sent(1) == ["Be brief.", "second"]
    assert talk.caller.salts[0] != talk.caller.salts[1]
    saved = [SavedCall.model_validate_json(line) for line in talk.saved.getvalue().splitlines()]
    assert [(call.call_form, call.exchange.error is None) for call in saved] == [
        (None, False),
        (CallForm.NONE, True),
    ]


def test_a_dead_engine_ends_the_conversation_with_its_own_reason(tmp_path: Path) -> None:
    talk = Conversation(tmp_path, exchange("half", error=ErrorKind.CUT))
    talk.engine_error = LabError("The engine ended: out of memory.")
    with pytest.raises(LabError, match="out of memory"):
        talk.say("first", "second")


def test_a_question_that_does_not_fit_is_forgotten_and_a_short_one_still_works(tmp_path: Path) -> None:
    talk = Conversation(tmp_path, exchange("fine"), window=450)
    assert talk.say("long " * 2000, "short") == 1
    assert "Expected a prompt of at most 440 tokens" in talk.out.getvalue()
    assert talk.sent(0) == ["Be brief.", "short"]


def test_every_exchange_is_saved_with_its_call_form(tmp_path: Path) -> None:
    text = '```json\n{"name": "list_dir", "arguments": {}}\n```'
    talk = Conversation(tmp_path, exchange(text), exchange("empty"))
    talk.say("What is here?")
    forms = [SavedCall.model_validate_json(line).call_form for line in talk.saved.getvalue().splitlines()]
    assert forms == [CallForm.FENCED, CallForm.NONE]


def test_reset_forgets_and_quit_ends(tmp_path: Path) -> None:
    talk = Conversation(tmp_path, exchange("one"), exchange("two"))
    talk.say("first", "/reset", "second", "/quit", "never asked")
    assert talk.sent(1) == ["Be brief.", "second"]
    assert talk.caller.salts[0] != talk.caller.salts[1]
    assert len(talk.caller.started) == 2


def test_the_other_commands_answer_and_ask_the_model_nothing(tmp_path: Path) -> None:
    talk = Conversation(tmp_path)
    talk.say("/help", "/tools", "/tokens", "/nonsense [red]")
    text = talk.out.getvalue()
    for words in (
        "/reset",
        "read_file(path, start_line, max_lines)",
        "no prompt has been rendered",
        "/nonsense",
    ):
        assert words in text
    assert talk.caller.started == []


def test_ctrl_c_at_the_prompt_empties_the_line_and_ctrl_d_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = iter(["one", KeyboardInterrupt(), "two", EOFError()])

    def typed(_prompt: str) -> str:
        key = next(keys)
        if isinstance(key, BaseException):
            raise key
        return key

    monkeypatch.setattr("builtins.input", typed)
    out = io.StringIO()
    assert list(keyboard_lines(Console(file=out))) == ["one", "two"]
    assert "Ctrl-D ends the conversation" in out.getvalue()
