"""Where a shell stands after the commands of a trajectory, or that this is not known.

Only what the words prove counts: `cd` in a chain of `&&` that succeeded. A variable, a substitution, a group,
an `||`, or a failed chain that holds a `cd` makes the directory unknown, until an absolute `cd` succeeds.
Paths are POSIX paths, resolved as the shell does by default (`..` takes off the last name).
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import Field

from serving.assembler.items import ContextItem
from serving.assembler.messages import ToolCall
from serving.assembler.payloads import ToolStep
from serving.assembler.record import Record

_MOVERS: Final = frozenset({"cd", "pushd", "popd", "eval", "source", ".", "exec", "chdir"})
_MAY_MOVE: Final = re.compile(r"(?<![\w./-])(?:cd|pushd|popd|eval|source|exec|chdir|\.)(?![\w./-])")
_PLAIN_PATH: Final = re.compile(r"[\w./@+:,=%~-]+")
_PLAIN_WORD: Final = re.compile(r"[\w./@+:,=%~\[-]+")
_QUOTED_PATH: Final = re.compile(r"'([^'\n~][^'\n]*)'|\"([^\"\n~$`\\!][^\"\n$`\\!]*)\"")
_OPERATORS: Final = "();<>|&\n"


class ShellTool(Record):
    """The tool whose calls share one shell, and the argument that carries the command."""

    name: str = Field(min_length=1)
    argument: str = "command"


@dataclass(frozen=True, slots=True)
class _Place:
    current: str | None
    previous: str | None
    home: str | None

    def moved(self, current: str | None) -> _Place:
        return _Place(current, self.current, self.home)


def working_directory(
    history: Sequence[ContextItem], shell: ShellTool, start: str | None, home: str | None = None
) -> str | None:
    """The directory after all calls of `shell` in `history`, which must be the whole log; None: unknown.

    `start` is where the shell was opened, `home` what `cd` alone and `~` mean. Parallel calls count in call
    order. A call without a result may still move, so a `cd` in it makes the directory unknown.
    """
    place = _Place(start, None, home)
    for item in history:
        if isinstance(item.payload, ToolStep):
            outcomes = {result.call_id: not result.failed for result in item.payload.results}
            for call in item.payload.calls:
                if call.name == shell.name and (command := _command(call, shell.argument)) is not None:
                    place = _after(place, command, outcomes.get(call.id))
    return place.current


def _command(call: ToolCall, argument: str) -> str | None:
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        # No tool can have run arguments that are not JSON, so nothing moved.
        return None
    command = arguments.get(argument) if isinstance(arguments, dict) else None
    return command if isinstance(command, str) else None


def _after(place: _Place, command: str, succeeded: bool | None) -> _Place:
    """The place after one command; `succeeded` None: it has not returned."""
    if not _MAY_MOVE.search(command):
        return place
    steps = _chain(command)
    if steps is None:
        return place.moved(None)
    # A first word with quotes or a backslash may spell `cd` in another way.
    moves = [words for words in steps if _MOVERS.intersection(words) or not _PLAIN_WORD.fullmatch(words[0])]
    if not moves:
        return place
    if not succeeded:
        # A `cd` that is the whole command and failed did not move; anything else may have moved half-way.
        alone = len(steps) == 1 and moves[0][0] == "cd"
        return place if alone and succeeded is False else place.moved(None)
    for words in moves:
        place = place.moved(_target(place, words))
    return place


def _chain(command: str) -> list[list[str]] | None:
    """The commands of an `&&` chain as words with their quotes; None for any other shape."""
    lexer = shlex.shlex(command.strip(), posix=False, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    try:
        words = list(lexer)
    except ValueError:
        return None
    steps: list[list[str]] = [[]]
    for word in words:
        if word.strip("\n") == "&&":
            steps.append([])
        elif set(word) <= set(_OPERATORS):
            return None
        else:
            steps[-1].append(word)
    return steps if all(steps) else None


def _target(place: _Place, words: Sequence[str]) -> str | None:
    if words[0] != "cd" or len(words) > 2:
        return None
    match words[1:]:
        case []:
            return place.home
        case ["-"]:
            return place.previous
        case [word]:
            path = _literal(word, place.home)
        case _:
            return None
    if path is None:
        return None
    if posixpath.isabs(path):
        return _normal(path)
    return None if place.current is None else _normal(posixpath.join(place.current, path))


def _literal(word: str, home: str | None) -> str | None:
    """The path that a word stands for; None when the shell would expand it to something unknown."""
    if inside := _QUOTED_PATH.fullmatch(word):
        return _no_option(inside[1] or inside[2])
    if not _PLAIN_PATH.fullmatch(word):
        return None
    if word == "~" or word.startswith("~/"):
        return None if home is None else home + word[1:]
    return None if "~" in word else _no_option(word)


def _no_option(path: str) -> str | None:
    return None if path.startswith("-") else path


def _normal(path: str) -> str:
    # Two leading slashes are one directory's name on no system that this tracks.
    return posixpath.normpath("/" + path.lstrip("/"))
