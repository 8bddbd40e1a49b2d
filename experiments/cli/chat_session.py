"""A conversation at the keyboard: questions and commands in, turns out, until the input ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import IO
from uuid import uuid4

from pydantic import BaseModel, ConfigDict
from rich.console import Console

from experiments.agent.callform import CallForm
from experiments.agent.events import Answer, CallFinished, CallStarted, FinishedCall, GaveUp, GaveUpReason
from experiments.agent.loop import CallFailedError, run_turn
from experiments.agent.protocols import ModelCaller, Tools
from experiments.agent.saving import kept, kept_failure
from experiments.agent.settings import TurnSettings
from experiments.cli.chat_view import ChatView
from experiments.cli.untrusted import untrusted
from serving.assembler import Rendered, ToolSpec, Trajectory
from serving.call import MeasuredCall
from serving.chat import ShownToken
from serving.client import Exchange
from serving.errors import LabError, UsageError
from serving.text import common_prefix


class ChatCommand(StrEnum):
    """What can be typed instead of a question."""

    HELP = "/help"
    TOKENS = "/tokens"
    TOOLS = "/tools"
    RESET = "/reset"
    QUIT = "/quit"


COMMAND_HELP = {
    ChatCommand.HELP: "this list",
    ChatCommand.TOKENS: "the last prompt as the model read it, token by token",
    ChatCommand.TOOLS: "the tools that the model is offered",
    ChatCommand.RESET: "forget the conversation and begin with a cold cache",
    ChatCommand.QUIT: "end (as Ctrl-D does); Ctrl-C stops an answer",
}


_COMPLETE = frozenset({GaveUpReason.MAX_ITERATIONS, GaveUpReason.REPEATED_CALL})
"""Reasons after which the turn's steps are whole, so that the conversation may go on from them."""


class SavedCall(BaseModel):
    """One line of `--save`: a call with what the exchange alone does not tell."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    exchange: Exchange
    predicted_cached_tokens: int | None
    call_form: CallForm | None
    """None for a call that failed."""


@dataclass(frozen=True)
class ChatParts:
    """What a conversation is made of."""

    new_caller: Callable[[], ModelCaller]
    """A caller with nothing predicted yet: made anew whenever the salt changes."""
    tools: Tools
    offered: tuple[ToolSpec, ...]
    settings: TurnSettings
    system: str
    show_tokens: Callable[[Rendered], list[ShownToken]]
    check: Callable[[], None]
    """Raises `LabError` when the engine is gone."""


class ChatSession:
    """Keeps the conversation, and gives it a new salt whenever it is unknown what the server kept."""

    def __init__(
        self, parts: ChatParts, console: Console, *, always_show_tokens: bool, save: IO[str] | None
    ) -> None:
        self._parts = parts
        self._console = console
        self._view = ChatView(console)
        self._always_show_tokens = always_show_tokens
        self._save = save
        self._trajectory = Trajectory(turns=())
        self._rendered: Rendered | None = None
        self._caller: ModelCaller = parts.new_caller()
        self._settings = parts.settings
        self._begin_anew()

    def run(self, lines: Iterator[str]) -> int:
        """Take questions and commands until they end; the number of turns that did not end in an answer."""
        unanswered = 0
        for line in lines:
            text = line.strip()
            if text == ChatCommand.QUIT:
                break
            if text.startswith("/"):
                self._command(text)
            elif text:
                unanswered += not self._turn(text)
        return unanswered

    def _turn(self, question: str) -> bool:
        answered = False
        try:
            with closing(
                run_turn(self._caller, self._parts.tools, self._trajectory, question, self._settings)
            ) as turn:
                for event in turn:
                    match event:
                        case CallStarted(rendered=rendered):
                            self._started(rendered)
                        case CallFinished(call=call, said=said, cut=cut):
                            self._record(call, kept(call.exchange, said, cut), said.form)
                        case Answer(trajectory=trajectory):
                            self._trajectory = trajectory
                        case GaveUp(reason=reason, trajectory=trajectory) if reason in _COMPLETE:
                            self._trajectory = trajectory  # its steps are complete, so the user may go on
                    self._view.show(event)
                    answered = isinstance(event, Answer)
        except KeyboardInterrupt:
            self._view.warn("stopped; this question is forgotten, and the next one begins with a cold cache")
            self._renew()
        except LabError as error:
            if isinstance(error, CallFailedError):
                failed = kept_failure(error.call.exchange, self._settings.redactor)
                self._record(error.call, failed, None)
            self._view.end_line()
            self._parts.check()  # a dead engine ends the conversation, with its root cause
            self._view.warn(f"{error} This question is forgotten, and the next one begins with a cold cache.")
            self._renew()
        return answered

    def _started(self, rendered: Rendered | None) -> None:
        before, self._rendered = self._rendered, rendered
        if rendered is not None and self._always_show_tokens:
            shared = 0 if before is None else common_prefix(before.token_ids, rendered.token_ids)
            self._view.tokens(self._parts.show_tokens(rendered), start=shared)

    def _record(self, call: FinishedCall, exchange: Exchange, form: CallForm | None) -> None:
        if self._save is None:
            return
        predicted = call.prediction.cached_tokens if isinstance(call, MeasuredCall) else None
        saved = SavedCall(exchange=exchange, predicted_cached_tokens=predicted, call_form=form)
        self._save.write(saved.model_dump_json() + "\n")
        self._save.flush()

    def _command(self, text: str) -> None:
        match text:
            case ChatCommand.HELP:
                for command, meaning in COMMAND_HELP.items():
                    self._console.print(f"[bold]{command}[/]  {meaning}")
            case ChatCommand.TOKENS if self._rendered is not None:
                self._view.tokens(self._parts.show_tokens(self._rendered))
            case ChatCommand.TOKENS:
                self._view.warn("no prompt has been rendered yet, or the model's template is not known here")
            case ChatCommand.TOOLS if self._parts.offered:
                self._view.tools(self._parts.offered)
            case ChatCommand.TOOLS:
                self._view.warn("the model is offered no tools")
            case ChatCommand.RESET:
                self._begin_anew()
                self._console.print("[dim]the conversation is forgotten; a new salt, so a cold cache[/]")
            case _:
                self._view.warn(f"there is no command {text.split()[0]}; /help lists them")

    def _begin_anew(self) -> None:
        self._trajectory = Trajectory(system=self._parts.system, tools=self._parts.offered, turns=())
        self._rendered = None
        self._renew()

    def _renew(self) -> None:
        self._caller = self._parts.new_caller()
        self._settings = replace(self._parts.settings, salt=f"chat-{uuid4().hex}")


def keyboard_lines(console: Console) -> Iterator[str]:
    """Lines typed at a prompt, until Ctrl-D; Ctrl-C empties the line."""
    import readline  # noqa: F401 (gives `input` a history and line editing)

    while True:
        try:
            yield input("\n» ")
        except EOFError:
            console.print()
            return
        except KeyboardInterrupt:
            console.print("\n[dim]Ctrl-D ends the conversation[/]")


def piped_lines(console: Console) -> Iterator[str]:
    """Lines of a pipe or file, each shown as it is taken."""
    for line in sys.stdin:
        if line.strip():
            console.print(untrusted(f"\n» {line.rstrip()}\n", "bold"))
        yield line


def open_for_saving(path: Path) -> IO[str]:
    """The file that exchanges are appended to. Raises `UsageError` when it cannot be written."""
    try:
        return path.open("a", encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"--save takes a file that can be written, and {path} cannot: {error.strerror}."
        ) from error
