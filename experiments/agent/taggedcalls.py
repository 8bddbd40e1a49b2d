"""Reasoning and calls in a completion as Qwen's template writes them: `<think>`, `<tool_call>`.

On the token-in surface no parser of the server stands between the model and us. One reader serves both the
stream and the finished text, so what started early is what is read at the end.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final

from experiments.agent.jsoncalls import object_parts, skip_space

_OPEN: Final = "<tool_call>"
_CLOSE: Final = "</tool_call>"
_THINK: Final = "<think>"
_THOUGHT: Final = "</think>"


@dataclass(frozen=True, slots=True)
class TaggedCall:
    """One call between its tags; `arguments` is the source text of the object."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class TaggedReply:
    """A completion taken apart."""

    text: str
    reasoning: str
    calls: tuple[TaggedCall, ...]
    broken: bool
    """Whether a tag was opened whose content is no call; its text stays in `text`, tags and all."""

    @classmethod
    def read(cls, text: str) -> TaggedReply:
        """Take a finished completion apart."""
        stream = TaggedStream()
        calls = tuple(stream.feed(text))
        said, reasoning = stream.text, stream.reasoning
        if not reasoning and said.lstrip().startswith(_THINK):  # cut while it was thinking
            said, reasoning = "", said.lstrip().removeprefix(_THINK)
        return cls(said.strip("\n"), reasoning.strip("\n"), calls, _OPEN in said)


@dataclass(slots=True)
class TaggedStream:
    """Reads a completion piece by piece; every call is given once, when its closing tag is complete."""

    reasoning: str = ""
    """What stood between the tags of thinking; empty until they are closed."""
    _answering: bool = False
    _words: list[str] = field(default_factory=list)
    _rest: str = ""

    def feed(self, piece: str) -> list[TaggedCall]:
        """Take a piece and give the calls that it completed."""
        self._rest += piece
        if not self._answering and not self._end_thinking():
            return []
        calls: list[TaggedCall] = []
        while (end := self._rest.find(_CLOSE)) != -1:
            self._answering = True
            before, opened, inside = self._rest[:end].partition(_OPEN)
            self._rest = self._rest[end + len(_CLOSE) :]
            call = _call_in(inside) if opened else None
            self._words.append(before if call is not None else f"{before}{opened}{inside}{_CLOSE}")
            calls += [] if call is None else [call]
        return calls

    @property
    def text(self) -> str:
        """The words outside reasoning and calls so far."""
        return "".join([*self._words, self._rest])

    def _end_thinking(self) -> bool:
        """Take the reasoning off; False while it may still go on. A template may have opened its tag itself."""
        opened = self._rest.lstrip()
        if _THOUGHT in self._rest:
            thought, _, self._rest = self._rest.partition(_THOUGHT)
            self.reasoning = thought.lstrip().removeprefix(_THINK)
            self._answering = True
        return self._answering or not (opened.startswith(_THINK) or _THINK.startswith(opened))


def _call_in(inside: str) -> TaggedCall | None:
    read = object_parts(inside, skip_space(inside, 0))
    if read is None or skip_space(inside, read[1]) != len(inside):
        return None
    name, arguments = json.loads(read[0].get("name", "null")), read[0].get("arguments", "{}")
    return TaggedCall(name, arguments) if isinstance(name, str) and name else None
