"""Knowing that a streamed tool call is complete: the moment its JSON closes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from serving.client.events import ToolCallFragment
from serving.client.exchange import ReceivedToolCall


@dataclass(slots=True)
class JsonClosing:
    """Follows the brackets of JSON text as it grows; linear in its length.

    Nothing in the stream marks a tool call's end, and parsing the whole text at every fragment would be
    quadratic. The brackets say when parsing is worth a try.
    """

    _depth: int = 0
    _in_string: bool = False
    _escaped: bool = False

    def feed(self, text: str) -> bool:
        """Whether the outermost bracket closed inside `text`."""
        closed = False
        for character in text:
            if self._in_string:
                if self._escaped:
                    self._escaped = False
                elif character == "\\":
                    self._escaped = True
                elif character == '"':
                    self._in_string = False
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                closed = closed or self._depth == 0
        return closed


@dataclass(slots=True)
class ToolCallAssembly:
    """One tool call as its fragments arrive."""

    index: int
    first_ns: int
    _id: str | None = None
    _name: str | None = None
    _arguments: list[str] = field(default_factory=list)
    _closing: JsonClosing = field(default_factory=JsonClosing)
    _closed_ns: int | None = None

    def add(self, fragment: ToolCallFragment) -> bool:
        """Take a fragment; True once, when it closes the JSON arguments."""
        self._id = self._id or fragment.call_id
        self._name = self._name or fragment.name
        self._arguments.append(fragment.arguments)
        if not self._closing.feed(fragment.arguments) or self._closed_ns is not None:
            return False
        try:
            json.loads("".join(self._arguments))
        except ValueError:
            return False  # brackets that match without being JSON: it stays open, and the record says so
        self._closed_ns = fragment.at_ns
        return True

    def snapshot(self) -> ReceivedToolCall:
        return ReceivedToolCall(
            index=self.index,
            id=self._id,
            name=self._name,
            arguments="".join(self._arguments),
            first_ns=self.first_ns,
            closed_ns=self._closed_ns,
        )
